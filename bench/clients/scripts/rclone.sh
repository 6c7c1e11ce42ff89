# rclone: copy, check, delete.
set -e
unset AWS_CA_BUNDLE # rclone takes no bundle for its own transport
export RCLONE_CONFIG=/dev/null RCLONE_S3_PROVIDER=Other RCLONE_S3_ENDPOINT="$1" RCLONE_S3_ENV_AUTH=true RCLONE_S3_REGION=us-east-1
mkdir -p rclone-dir/sub && head -c 20000000 /dev/urandom >rclone-dir/large && echo two >"rclone-dir/sub/2 ü"
rclone copy --s3-upload-cutoff 5M rclone-dir ":s3:$2/rclone"
rclone check --download rclone-dir ":s3:$2/rclone" 2>/dev/null
rm -rf rclone-back && rclone copy --multi-thread-cutoff 1M ":s3:$2/rclone" rclone-back && diff -r rclone-dir rclone-back
rclone purge ":s3:$2/rclone"
echo "copy, check, purge; $(rclone version | head -1)"
