# AWS CLI: copies, lists, ranges and deletes.
set -e
aws="aws --endpoint-url $1 --region us-east-1"
head -c 20000000 /dev/urandom >cli-large
$aws s3 cp --quiet cli-large "s3://$2/cli/large"
$aws s3 cp --quiet "s3://$2/cli/large" cli-again
cmp cli-large cli-again
$aws s3api get-object --bucket "$2" --key cli/large --range bytes=5-14 cli-range >/dev/null
tail -c +6 cli-large | head -c 10 | cmp - cli-range
mkdir -p cli-dir/sub && echo one >cli-dir/1 && echo two >"cli-dir/sub/2 ü"
$aws s3 sync --quiet cli-dir "s3://$2/cli/dir"
rm -rf cli-back && $aws s3 sync --quiet "s3://$2/cli/dir" cli-back && diff -r cli-dir cli-back
$aws s3 ls "s3://$2/cli/" >/dev/null
$aws s3 mv --quiet "s3://$2/cli/dir/1" "s3://$2/cli/moved" # a large one takes UploadPartCopy, which gofakes3 lacks
$aws s3 cp --quiet "s3://$2/cli/moved" cli-again && cmp cli-dir/1 cli-again
$aws s3 rm --quiet --recursive "s3://$2/cli/"
! $aws s3 ls "s3://$2/cli/moved"
echo "cp, sync, range, mv, rm; $(aws --version | cut -d' ' -f1)"
