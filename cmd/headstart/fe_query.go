package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	"headstart/cmd/config"
	"headstart/rpc/mysql"
)

// openQuery makes the front for MySQL clients.
func (f *fe) openQuery(context.Context) (err error) {
	mysql.LogVitess(f.log)
	users := mysql.NewUsers()
	var list []mysql.User
	var token string
	set := func() {
		if list == nil {
			users.Set([]mysql.User{{Name: "root", Password: token}})
		} else {
			users.Set(list)
		}
	}
	// One of these is called at a time.
	f.conf.Bind("query_users", func(v config.Value) { list = usersOf(v.Text()); set() })
	f.conf.Bind("admin_token", func(v config.Value) { token = v.Text(); set() })
	o := mysql.Options{
		Listener: f.queryLn, Directory: f.directory, Backends: f.backends, Config: nodeConfig{f.conf}, Users: users,
		Frontends: f.state.frontends, Changed: f.conductor.Wake, Logger: f.log,
	}
	if path := f.conf.String("query_tls_cert_path"); path != "" {
		cert, err := tls.LoadX509KeyPair(path, f.conf.String("query_tls_key_path"))
		if err != nil {
			return fmt.Errorf("query_tls_cert_path: %w", err)
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	f.query, err = mysql.NewServer(o)
	return err
}

// usersOf reads query_users, whose form has been checked.
func usersOf(text string) (list []mysql.User) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, password, _ := strings.Cut(strings.TrimSpace(part), ":")
		password, _, readOnly := strings.Cut(password, ":")
		list = append(list, mysql.User{Name: name, Password: password, ReadOnly: readOnly})
	}
	return list
}
