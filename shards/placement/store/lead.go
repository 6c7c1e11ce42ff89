package store

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// fence is the proof of leading: Save holds with it only while the key is there.
type fence struct {
	key      string
	revision int64
}

type fenceKey struct{}

const (
	// leaseSeconds is how long a leader that has died is still believed in.
	leaseSeconds = 5
	// campaignAgain is the pause after a failed attempt to lead.
	campaignAgain = time.Second
)

// Lead calls lead whenever this FE is elected, until ctx ends. Its context ends
// when the FE leads no more; what is saved with it is refused from the moment on
// at which another FE leads.
func (e *Etcd) Lead(ctx context.Context, lead func(context.Context)) {
	for ctx.Err() == nil {
		if err := e.leadOnce(ctx, lead); err != nil && ctx.Err() == nil {
			e.log.Warn("cannot stand for election", "error", e.wrap(err))
			select {
			case <-ctx.Done():
			case <-time.After(campaignAgain):
			}
		}
	}
}

func (e *Etcd) leadOnce(ctx context.Context, lead func(context.Context)) error {
	session, err := concurrency.NewSession(e.client, concurrency.WithTTL(leaseSeconds), concurrency.WithContext(ctx))
	if err != nil {
		return err
	}
	// The lease ends by itself if this does not reach etcd.
	defer session.Close()
	campaign, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // ends with the session, or with the return
		select {
		case <-session.Done():
			cancel()
		case <-stop:
		}
	}()
	election := concurrency.NewElection(session, e.leader)
	if err := election.Campaign(campaign, e.name); err != nil {
		return err
	}
	e.log.Info("this FE leads", "name", e.name)
	lead(context.WithValue(campaign, fenceKey{}, fence{election.Key(), election.Rev()}))
	e.log.Info("this FE leads no more", "name", e.name)
	resign, done := context.WithTimeout(context.WithoutCancel(ctx), campaignAgain)
	defer done()
	return election.Resign(resign)
}

// Frontends returns the names of the FEs that are there, the leader first.
func (e *Etcd) Frontends(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	all, err := e.client.Get(ctx, e.leader+"/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, e.wrap(err)
	}
	names := make([]string, len(all.Kvs))
	for i, kv := range all.Kvs {
		names[i] = string(kv.Value)
	}
	return names, nil
}
