package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/cespare/xxhash/v2"
	"github.com/valyala/fasthttp"

	"headstart/engine/block"
	"headstart/rpc"
)

// Options say where a cluster is and how it is asked.
type Options struct {
	// Nodes are the host:port of BEs: webserver_port for HTTP, brpc_port for
	// Kitex, s3_port for S3. Reads of one object go to one of them.
	Nodes  []string
	Bucket string
	// ReadToken is the cluster's read_token, "" for none.
	ReadToken string
	// KeyID and Secret sign S3 requests; "" for none.
	KeyID, Secret string
	// InFlight is how many connections a node may have to serve.
	InFlight int
	// Timeout bounds one read.
	Timeout time.Duration
}

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	if len(o.Nodes) == 0 {
		return fmt.Errorf("no node is named: want host:port, or several with commas")
	}
	for _, n := range o.Nodes {
		if _, port, err := net.SplitHostPort(n); err != nil || port == "" || port == "0" {
			return fmt.Errorf("%q is no address of a node: want host:port", n)
		}
	}
	return nil
}

// pick chooses the node that an object is read from, in each run the same.
func pick(o *Object, nodes int) int { return int(xxhash.Sum64String(o.Key) % uint64(nodes)) }

// httpDoor reads by GET /read.
type httpDoor struct {
	o     Options
	nodes []*fasthttp.HostClient
}

// cutConn is a connection that ends with a context.
type cutConn struct {
	net.Conn
	stop func() bool
}

// Close implements net.Conn.
func (c cutConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// OpenHTTP returns the door of /read. Its reads end with ctx: fasthttp knows of no
// other.
func OpenHTTP(ctx context.Context, o Options) (Door, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := &httpDoor{o: o}
	dialer := net.Dialer{Timeout: o.Timeout}
	dial := func(addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return cutConn{conn, context.AfterFunc(ctx, func() { conn.Close() })}, nil
	}
	for _, addr := range o.Nodes {
		d.nodes = append(d.nodes, &fasthttp.HostClient{
			Addr: addr, MaxConns: o.InFlight, MaxIdemponentCallAttempts: 1, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
			MaxConnWaitTimeout: o.Timeout, NoDefaultUserAgentHeader: true, Dial: dial,
		})
	}
	return d, nil
}

// Read implements Door.
func (d *httpDoor) Read(_ context.Context, o *Object, r Read, dst []byte) (int, string, error) {
	at := pick(o, len(d.nodes))
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	uri := "/read?path=" + url.QueryEscape("s3://"+d.o.Bucket+"/"+o.Key) +
		"&offset=" + strconv.FormatInt(r.Offset, 10) + "&size=" + strconv.FormatInt(r.Length, 10)
	if o.Tablet != External {
		uri += "&tablet_id=" + strconv.FormatInt(o.Tablet, 10)
	}
	req.SetRequestURI(uri)
	req.Header.SetHost(d.o.Nodes[at])
	if d.o.ReadToken != "" {
		req.Header.Set("Authorization", "Bearer "+d.o.ReadToken)
	}
	if err := d.nodes[at].Do(req, resp); err != nil {
		return 0, "", fmt.Errorf("http://%s%s: %w", d.o.Nodes[at], uri, err)
	}
	body := resp.Body()
	if code := resp.StatusCode(); code != fasthttp.StatusOK && code != fasthttp.StatusPartialContent {
		return 0, "", fmt.Errorf("http://%s%s: status %d: %.300s", d.o.Nodes[at], uri, code, body)
	}
	copy(dst, body)
	return len(body), string(resp.Header.Peek("X-Headstart-Source")), nil
}

// Close implements Door.
func (d *httpDoor) Close() {
	for _, n := range d.nodes {
		n.CloseIdleConnections()
	}
}

// kitexDoor reads by the Read call of the IDL.
type kitexDoor struct {
	o      Options
	nodes  []block.Addr
	client *rpc.Client
}

// OpenKitex returns the door of the Kitex read.
func OpenKitex(o Options) (Door, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := &kitexDoor{o: o}
	for _, text := range o.Nodes {
		a, err := block.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		d.nodes = append(d.nodes, a)
	}
	var err error
	d.client, err = rpc.NewClient(rpc.ClientOptions{
		Identity: rpc.NewIdentity(block.Node{ID: "headstart bench"}, "", ""), ReadToken: o.ReadToken, MaxConnsPerAddr: o.InFlight,
		ConnectTimeout: o.Timeout, Alloc: func(n int) (*block.Buf, error) { return block.NewBuf(make([]byte, n), nil), nil },
	})
	return d, err
}

// Read implements Door.
func (d *kitexDoor) Read(ctx context.Context, o *Object, r Read, dst []byte) (n int, from string, err error) {
	req := Request(o, r, d.o.Bucket)
	at := d.nodes[pick(o, len(d.nodes))]
	for n < len(dst) {
		req.Offset, req.Size = r.Offset+int64(n), int64(len(dst)-n)
		got, err := d.client.Read(ctx, at, req, dst[n:])
		if err != nil {
			return n, from, err
		}
		if n == 0 {
			from = got.Source.String()
		}
		if got.N == 0 {
			break
		}
		n += got.N
	}
	return n, from, nil
}

// Close implements Door.
func (d *kitexDoor) Close() { d.client.Close() }

// Request is a read as nodes know it.
func Request(o *Object, r Read, bucket string) *block.Read {
	object := block.Object{Store: block.DefaultStore, Bucket: bucket, Key: o.Key}
	req := &block.Read{Object: object, Offset: r.Offset, Size: r.Length, Route: block.ExternalRoute(object)}
	if o.Tablet != External {
		req.Route, req.Version = block.TabletRoute(o.Tablet), block.Immutable
	}
	return req
}

// s3Door reads by GetObject of the AWS SDK.
type s3Door struct {
	o     Options
	http  *awshttp.BuildableClient
	nodes []*s3.Client
}

// OpenS3 returns the door of the S3 front, or of object storage itself.
func OpenS3(o Options) (Door, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d := &s3Door{o: o, http: awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, o.InFlight
	})}
	var signer aws.CredentialsProvider
	if o.KeyID != "" {
		signer = aws.NewCredentialsCache(credentials.NewStaticCredentialsProvider(o.KeyID, o.Secret, ""))
	}
	for _, addr := range o.Nodes {
		d.nodes = append(d.nodes, s3.New(s3.Options{
			Region: "us-east-1", BaseEndpoint: aws.String("http://" + addr), UsePathStyle: true,
			Credentials: signer, Retryer: aws.NopRetryer{}, HTTPClient: d.http,
		}))
	}
	return d, nil
}

// Read implements Door.
func (d *s3Door) Read(ctx context.Context, o *Object, r Read, dst []byte) (int, string, error) {
	at := pick(o, len(d.nodes))
	got, err := d.nodes[at].GetObject(ctx, &s3.GetObjectInput{
		Bucket: aws.String(d.o.Bucket), Key: aws.String(o.Key),
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1)),
	})
	if err != nil {
		return 0, "", err
	}
	defer got.Body.Close()
	n, err := io.ReadFull(got.Body, dst)
	if err != nil {
		return n, "", fmt.Errorf("%s of %s: %w", o.Key, d.o.Nodes[at], err)
	}
	return n, "", nil
}

// Close implements Door.
func (d *s3Door) Close() { d.http.GetTransport().CloseIdleConnections() }
