// The words that nodes of Headstart speak with each other.
//
// Numbers and names of fields never change their meaning. A node works with
// nodes one protocol version older or newer, so a field that is added has to be
// optional for one version: a reader takes what is missing for zero.
namespace go headstart

// Base opens every message, requests and replies. proof is "" without a cluster
// token; with one it is the HMAC-SHA256, under the token, of "request" or
// "reply", cluster_id and node_id, each behind its length in 4 bytes (the most
// significant first).
struct Base {
    1: i32 version
    2: string cluster_id
    3: string node_id
    4: string compute_group_id
    5: string location
    6: binary proof
}

// Failure says why a call as a whole gave nothing; codes are in rpc/failure.go.
struct Failure {
    1: i32 code
    2: string message
}

struct Object {
    1: string store
    2: string bucket
    3: string key
}

// Meta is what is known of one version of an object: size -1 and modified 0
// mean not known. modified is in nanoseconds since 1970.
struct Meta {
    1: i64 size
    2: string version
    3: string etag
    4: i64 modified
    5: string content_type
}

// Range is count blocks from first on.
struct Range {
    1: i64 first
    2: i32 count
}

// A tablet (kind 1) or an object outside tablets (kind 2).
struct Route {
    1: i32 kind
    2: i64 id
}

struct FetchRequest {
    1: Base base
    2: Object object
    3: string version
    4: i64 size
    5: string etag
    6: i64 block_size
    // All ranges lie within 16 blocks.
    7: list<Range> ranges
    8: Route route
    9: i32 kind
    10: i32 queue
    11: string query_id
    12: bool fill
    13: bool wait
    // What Cancel names the call by; 0 cannot be cancelled.
    14: i64 call_id
    // How long the caller waits from now on; 0 says nothing.
    15: i64 deadline_ms
    // The W3C traceparent of the read, whose span is the caller's.
    16: optional string traceparent
}

// Block is the answer for one block. crc32c is a uint32 in an i32's clothes.
struct Block {
    1: i64 index
    2: i32 status
    3: i32 length
    4: i32 crc32c
}

// The payload holds the bytes of all blocks whose status is 1 (data), in the
// order of blocks and without gaps. It stays the last field of the message.
struct FetchReply {
    1: Base base
    2: optional Failure failure
    3: optional Meta meta
    4: list<Block> blocks
    // How long the request has waited for a worker; left out when it has not.
    5: optional i64 waited_us
    100: binary payload
}

struct CancelRequest {
    1: Base base
    2: i64 call_id
}

struct CancelReply {
    1: Base base
    2: optional Failure failure
    // Whether the call was running.
    3: bool found
}

struct StatRequest {
    1: Base base
    2: Object object
    3: string version
}

struct StatReply {
    1: Base base
    2: optional Failure failure
    3: optional Meta meta
}

// A file within a larger object.
struct Slice {
    1: i64 offset
    2: i64 size
}

// A read by a caller that is not a node: it has a read_token instead of a proof.
struct ReadRequest {
    1: Base base
    2: string read_token
    3: Object object
    4: string version
    5: Route route
    6: i64 offset
    // Negative: to the end. A reply may be shorter than what was asked for.
    7: i64 size
    8: i32 kind
    9: i32 queue
    10: string query_id
    11: i64 deadline_ms
    // The W3C traceparent of the read.
    12: optional string traceparent
    // The file that is read, when it is a part of the object. offset is the
    // object's all the same, so that a node which does not know this field reads
    // the right bytes.
    13: optional Slice packed
}

struct ReadReply {
    1: Base base
    2: optional Failure failure
    3: optional Meta meta
    // Where the first byte came from: 1 local, 2 peer, 3 object storage.
    4: i32 source
    100: binary payload
}

// Peer is what a BE serves on its brpc_port.
service Peer {
    FetchReply FetchBlocks(1: FetchRequest req)
    CancelReply Cancel(1: CancelRequest req)
    StatReply Stat(1: StatRequest req)
    ReadReply Read(1: ReadRequest req)
}

// Times are in nanoseconds since 1970, durations in milliseconds.
struct HeartbeatRequest {
    1: Base base
    2: string host
    3: i32 heartbeat_port
    4: i32 be_port
    5: i32 http_port
    6: i32 brpc_port
    7: i32 arrow_flight_sql_port
    8: string compute_group_name
    9: string cloud_unique_id
    10: string version
    11: i64 started
    12: i32 cpu_cores
    13: i64 memory_bytes
    14: i64 cache_capacity_bytes
    15: i64 cache_used_bytes
    16: bool leaving
}

struct HeartbeatReply {
    1: Base base
    2: optional Failure failure
    3: i64 backend_id
    4: string cluster_id
    5: i64 interval_ms
}

struct LookupRequest {
    1: Base base
    2: list<Route> routes
}

struct Holder {
    1: string host
    2: i32 brpc_port
    3: string compute_group_id
    4: string location
}

struct Holders {
    1: list<Holder> holders
}

// One entry for each route asked for, in their order.
struct LookupReply {
    1: Base base
    2: optional Failure failure
    3: list<Holders> routes
}

// Directory is what an FE serves on its rpc_port.
service Directory {
    HeartbeatReply Heartbeat(1: HeartbeatRequest req)
    LookupReply Lookup(1: LookupRequest req)
}

// WarmGroup is tablets that have the same sources: BEs that know what is hot,
// best first. Without any the BE goes by what it knows itself.
struct WarmGroup {
    1: list<Holder> sources
    2: list<i64> tablets
}

// WarmObject is an object outside tablets.
struct WarmObject {
    1: Object object
    2: Meta meta
}

// WarmBatch is work for one BE; its id is never used again. balance is set when
// the tablets are moving to the BE: it makes the sources their first candidates
// before it answers.
struct WarmBatch {
    1: string id
    2: bool balance
    3: list<WarmGroup> groups
    4: list<WarmObject> objects
}

// state: 0 not known, 1 queued, 2 running, 3 done, 4 failed. error is why blocks
// could not be copied.
struct WarmProgress {
    1: string id
    2: i32 state
    3: i64 blocks
    4: i64 bytes
    5: string error
}

// start, and ids of batches to report on and to give up.
struct WarmRequest {
    1: Base base
    2: list<WarmBatch> start
    3: list<string> ask
    4: list<string> drop
}

// One entry for each batch that was started or asked for.
struct WarmReply {
    1: Base base
    2: optional Failure failure
    3: list<WarmProgress> progress
}

// Objects whose keys begin with prefix's, in their order, behind after.
struct ListRequest {
    1: Base base
    2: Object prefix
    3: string after
    4: i32 max
}

struct ListReply {
    1: Base base
    2: optional Failure failure
    3: list<WarmObject> objects
    4: bool more
}

struct HotRequest {
    1: Base base
    2: list<i64> tablets
}

// HotObject is what a BE has of one object of a tablet, in blocks of block_size
// bytes.
struct HotObject {
    1: i64 tablet
    2: Object object
    3: Meta meta
    4: list<Range> ranges
}

struct HotReply {
    1: Base base
    2: optional Failure failure
    3: list<HotObject> objects
    4: i64 block_size
}

// ForgetRequest names objects that somebody has changed: what the BE knows of them
// no longer holds.
struct ForgetRequest {
    1: Base base
    2: list<Object> objects
}

struct ForgetReply {
    1: Base base
    2: optional Failure failure
}

struct ShowConfigRequest {
    1: Base base
}

struct ConfigItem {
    1: string key
    2: string value
    3: string type
    4: bool is_mutable
}

struct ShowConfigReply {
    1: Base base
    2: optional Failure failure
    3: list<ConfigItem> items
}

// All values or none.
struct SetConfigRequest {
    1: Base base
    2: map<string, string> values
    3: bool persist
}

struct SetConfigReply {
    1: Base base
    2: optional Failure failure
}

// Backend is what a BE serves on its brpc_port beside Peer: for FEs, Hot for BEs
// that warm up, and Forget for BEs through which an object was written.
service Backend {
    WarmReply Warm(1: WarmRequest req)
    ListReply List(1: ListRequest req)
    HotReply Hot(1: HotRequest req)
    ForgetReply Forget(1: ForgetRequest req)
    ShowConfigReply ShowConfig(1: ShowConfigRequest req)
    SetConfigReply SetConfig(1: SetConfigRequest req)
}
