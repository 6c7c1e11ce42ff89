vcl 4.1;
# Varnish keeps whole objects in memory: it fetches all of one for any range of it.
backend default { .host = "{{.OriginHost}}"; .port = "{{.OriginPort}}"; }
sub vcl_recv { unset req.http.Cookie; return (hash); }
sub vcl_backend_response { set beresp.ttl = 24h; set beresp.do_gzip = false; return (deliver); }
