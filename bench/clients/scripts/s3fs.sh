# s3fs: a mounted bucket: write, read, read in the middle, list, rename, append, delete.
set -e
test -w /dev/fuse || { echo "no /dev/fuse to mount with"; exit 1; }
mkdir -p s3fs-mount
printf '%s:%s\n' "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >s3fs-passwd && chmod 600 s3fs-passwd
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
s3fs "$2" s3fs-mount -o "url=$1" -o passwd_file=s3fs-passwd -o use_path_request_style -o endpoint=us-east-1 -o multipart_size=5 -o no_check_certificate
trap 'fusermount -u s3fs-mount' EXIT
dir=s3fs-mount/s3fs
mkdir "$dir" && mkdir "$dir/sub"
head -c 20000001 /dev/urandom >s3fs-large
cp s3fs-large "$dir/large" && cmp s3fs-large "$dir/large"
dd if="$dir/large" bs=1 skip=12345678 count=1000 2>/dev/null | cmp - <(tail -c +12345679 s3fs-large | head -c 1000)
echo one >"$dir/sub/2 ü" && echo two >>"$dir/sub/2 ü" && test "$(cat "$dir/sub/2 ü")" = "one
two"
mv "$dir/large" "$dir/renamed" && cmp s3fs-large "$dir/renamed"
test "$(ls "$dir" | tr '\n' ' ')" = "renamed sub "
rm -r "$dir" && test ! -e "$dir"
echo "write, read, middle, list, rename, append, delete; $(s3fs --version | head -1)"
