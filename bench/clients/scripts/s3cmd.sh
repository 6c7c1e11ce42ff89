# s3cmd: put, get, sync, del.
set -e
host=${1#http://}
s3="s3cmd --quiet --no-ssl --host=$host --host-bucket=$host --access_key=$AWS_ACCESS_KEY_ID --secret_key=$AWS_SECRET_ACCESS_KEY --region=us-east-1"
head -c 20000000 /dev/urandom >s3cmd-large
$s3 put s3cmd-large "s3://$2/s3cmd/large ü"
$s3 get --force "s3://$2/s3cmd/large ü" s3cmd-again
cmp s3cmd-large s3cmd-again
$s3 ls "s3://$2/s3cmd/" >/dev/null
$s3 del --recursive --force "s3://$2/s3cmd/"
test -z "$($s3 ls "s3://$2/s3cmd/")"
echo "put, get, ls, del; $(s3cmd --version)"
