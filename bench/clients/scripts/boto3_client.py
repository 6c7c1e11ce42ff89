"""boto3: everything that an application does with a bucket."""
import hashlib, os, sys
import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, bucket = sys.argv[1], sys.argv[2]
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=Config(signature_version="s3v4", s3={"addressing_style": "path"}))
small, large = os.urandom(1000), os.urandom(21 << 20)
checks = 0


def check(what, ok):
    global checks
    checks += 1
    if not ok:
        sys.exit(f"boto3: {what}")


s3.put_object(Bucket=bucket, Key="boto/small ü+&", Body=small, Metadata={"color": "blue"}, ContentType="text/x-test")
got = s3.get_object(Bucket=bucket, Key="boto/small ü+&")
check("small object", got["Body"].read() == small and got["Metadata"] == {"color": "blue"} and got["ContentType"] == "text/x-test")
with open("large", "wb") as f:
    f.write(large)
parts = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20)
s3.upload_file("large", bucket, "boto/large", Config=parts)
s3.download_file(bucket, "boto/large", "again", Config=parts)
check("large object in parts", hashlib.sha256(open("again", "rb").read()).digest() == hashlib.sha256(large).digest())
for first, last in ((0, 0), (1 << 20, 2 << 20), (len(large) - 1, len(large) + 9)):
    got = s3.get_object(Bucket=bucket, Key="boto/large", Range=f"bytes={first}-{last}")
    check("range", got["Body"].read() == large[first : last + 1])
head = s3.head_object(Bucket=bucket, Key="boto/large")
check("head", head["ContentLength"] == len(large))
try:
    s3.get_object(Bucket=bucket, Key="boto/large", IfNoneMatch=head["ETag"])
    check("304", False)
except ClientError as e:
    check("304", e.response["ResponseMetadata"]["HTTPStatusCode"] == 304)
url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "boto/small ü+&"})
import urllib.request

check("presigned", urllib.request.urlopen(url).read() == small)
keys = [o["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="boto/", PaginationConfig={"PageSize": 1}) for o in page["Contents"]]
check("list", keys == ["boto/large", "boto/small ü+&"])
s3.copy_object(Bucket=bucket, Key="boto/copy", CopySource={"Bucket": bucket, "Key": "boto/large"})
check("copy", s3.get_object(Bucket=bucket, Key="boto/copy")["Body"].read() == large)
s3.put_object(Bucket=bucket, Key="boto/copy", Body=b"new")
check("overwrite", s3.get_object(Bucket=bucket, Key="boto/copy")["Body"].read() == b"new")
s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys + ["boto/copy"]]})
try:
    s3.get_object(Bucket=bucket, Key="boto/copy")
    check("deleted", False)
except ClientError as e:
    check("deleted", e.response["Error"]["Code"] == "NoSuchKey")
check("buckets", bucket in [b["Name"] for b in s3.list_buckets()["Buckets"]])
print(f"{checks} checks, boto3 {boto3.__version__}")
