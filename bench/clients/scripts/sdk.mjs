// The JavaScript SDK: put, get, range, list, delete.
import { S3Client, PutObjectCommand, GetObjectCommand, ListObjectsV2Command, DeleteObjectCommand, HeadObjectCommand } from "@aws-sdk/client-s3";
import { randomBytes } from "node:crypto";

const [endpoint, Bucket] = process.argv.slice(2);
const s3 = new S3Client({ endpoint, region: "us-east-1", forcePathStyle: true });
const Key = "js/a ü+&", body = randomBytes(3_000_000);
const bytes = async (out) => Buffer.from(await out.Body.transformToByteArray());
const check = (what, ok) => { if (!ok) { console.error("javascript: " + what); process.exit(1); } };
await s3.send(new PutObjectCommand({ Bucket, Key, Body: body, Metadata: { color: "blue" } }));
check("get", (await bytes(await s3.send(new GetObjectCommand({ Bucket, Key })))).equals(body));
check("range", (await bytes(await s3.send(new GetObjectCommand({ Bucket, Key, Range: "bytes=5-1000004" })))).equals(body.subarray(5, 1000005)));
check("head", (await s3.send(new HeadObjectCommand({ Bucket, Key }))).Metadata.color === "blue");
check("list", (await s3.send(new ListObjectsV2Command({ Bucket, Prefix: "js/" }))).Contents[0].Key === Key);
await s3.send(new DeleteObjectCommand({ Bucket, Key }));
let gone = false;
try { await s3.send(new GetObjectCommand({ Bucket, Key })); } catch (e) { gone = e.name === "NoSuchKey"; }
check("deleted", gone);
console.log("put, get, range, head, list, delete");
