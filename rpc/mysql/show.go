package mysql

import (
	"context"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"vitess.io/vitess/go/sqltypes"

	"headstart/shards/placement"
)

// row is one row of a result. Everything is text, as in the reference.
type row []sqltypes.Value

func str(s string) sqltypes.Value { return sqltypes.NewVarChar(s) }

func num[N int | int64 | uint32 | uint64](n N) sqltypes.Value { return str(fmt.Sprint(n)) }

// when is a time as the reference shows it, in UTC.
func when(t time.Time) sqltypes.Value {
	if t.IsZero() {
		return sqltypes.NULL
	}
	return str(t.UTC().Format(time.DateTime))
}

// size is a number of bytes for people.
func size(bytes int64) sqltypes.Value {
	n, unit := float64(bytes), "B"
	for _, larger := range []string{"KB", "MB", "GB", "TB", "PB"} {
		if n < 1024 {
			break
		}
		n, unit = n/1024, larger
	}
	return str(strconv.FormatFloat(n, 'f', 3, 64) + " " + unit)
}

func percent(p float64) sqltypes.Value { return str(strconv.FormatFloat(p, 'f', 2, 64) + " %") }

func yes(b bool) sqltypes.Value { return str(strconv.FormatBool(b)) }

// showBackends is SHOW BACKENDS.
type showBackends struct{}

func (showBackends) columns() []string {
	return []string{
		"BackendId", "Host", "HeartbeatPort", "BePort", "HttpPort", "BrpcPort", "ArrowFlightSqlPort",
		"LastStartTime", "LastHeartbeat", "Alive", "SystemDecommissioned", "TabletNum",
		"DataUsedCapacity", "TrashUsedCapacity", "AvailCapacity", "TotalCapacity", "UsedPct", "MaxDiskUsedPct",
		"RemoteUsedCapacity", "Tag", "ErrMsg", "Version", "Status", "HeartbeatFailureCounter",
		"CpuCores", "Memory", "LiveSince", "RunningTasks", "NodeRole",
	}
}

func (showBackends) run(_ context.Context, s *session) ([]row, error) {
	views := s.server.directory.Backends()
	rows := make([]row, len(views))
	for i, v := range views {
		rows[i] = row{
			num(v.BackendID), str(v.Host), num(v.HeartbeatPort), num(v.BePort), num(v.HTTPPort), num(v.BrpcPort), num(v.ArrowFlightSQLPort),
			when(v.LastStartTime), when(v.LastHeartbeat), yes(v.Alive), yes(v.SystemDecommissioned), num(v.TabletNum),
			size(v.DataUsedCapacity), size(v.TrashUsedCapacity), size(v.AvailCapacity), size(v.TotalCapacity), percent(v.UsedPct), percent(v.MaxDiskUsedPct),
			size(v.RemoteUsedCapacity), str(v.Tag), str(v.ErrMsg), str(v.Version), str(v.Status), num(v.HeartbeatFailureCounter),
			num(v.CPUCores), size(v.Memory), when(v.LiveSince), num(v.RunningTasks), str(v.NodeRole),
		}
	}
	return rows, nil
}

// showGroups is SHOW COMPUTE GROUPS. The first columns are the reference's.
type showGroups struct{}

func (showGroups) columns() []string {
	return []string{
		"Name", "IsCurrent", "Users", "BackendNum", "Properties",
		"Id", "Status", "AliveNum", "BalanceState", "BalanceMoved", "BalanceMoves", "BalanceWarm", "BalanceFailed",
	}
}

func (showGroups) run(_ context.Context, s *session) ([]row, error) {
	var rows []row
	for _, g := range s.server.directory.Groups() {
		properties := fmt.Sprintf("{balance_type=%s, balance_warm_up_task_timeout=%d}", g.BalanceType, int(g.WarmUpTimeout.Seconds()))
		rows = append(rows, row{
			str(g.Name), str("FALSE"), str(""), num(g.Backends), str(properties),
			str(g.ID), str(g.Status), num(g.Alive), str(balanceState(&g.Round)), num(g.Round.Moved), num(g.Round.Moves),
			num(g.Round.Warm), num(g.Round.TimedOut + g.Round.Failed),
		})
	}
	return rows, nil
}

// balanceState says in a word how the last round of balance is doing.
func balanceState(r *placement.Round) string {
	switch {
	case r.Started.IsZero():
		return "NONE"
	case r.Ended.IsZero():
		return "RUNNING"
	}
	return "FINISHED"
}

// showFrontends is SHOW FRONTENDS.
type showFrontends struct{}

func (showFrontends) columns() []string {
	return []string{"Name", "Host", "HttpPort", "QueryPort", "RpcPort", "IsMaster", "Alive", "LastStartTime", "Version"}
}

func (showFrontends) run(ctx context.Context, s *session) ([]row, error) {
	list, err := s.server.frontends(ctx)
	rows := make([]row, len(list))
	for i, f := range list {
		name := net.JoinHostPort(f.Host, strconv.Itoa(f.RPCPort))
		rows[i] = row{
			str(name), str(f.Host), num(f.HTTPPort), num(f.QueryPort), num(f.RPCPort), yes(i == 0), yes(true), when(f.Started), str(f.Version),
		}
	}
	return rows, err
}

// showTablets is SHOW TABLETS FROM.
type showTablets struct {
	backend int64
	limit   int
}

func parseShowTablets(p *parser) statement {
	p.accept("BACKEND")
	st := showTablets{backend: p.number("a backend id"), limit: 10_000}
	if p.accept("LIMIT") {
		st.limit = int(min(p.number("a limit"), math.MaxInt32))
	}
	return st
}

func (showTablets) columns() []string { return []string{"TabletId", "BackendId"} }

func (s showTablets) run(_ context.Context, of *session) ([]row, error) {
	views, err := of.server.directory.TabletsOf(s.backend, s.limit)
	rows := make([]row, len(views))
	for i, v := range views {
		rows[i] = row{num(v.TabletID), num(v.BackendID)}
	}
	return rows, err
}

// showJobs is SHOW WARM UP JOB, of all of them for id 0.
type showJobs struct{ id int64 }

func parseShowJobs(p *parser) statement {
	if !p.accept("WHERE") {
		return showJobs{}
	}
	return showJobs{id: parseID(p)}
}

func parseID(p *parser) int64 {
	p.expect("ID =")
	return p.number("the number of a job")
}

func (showJobs) columns() []string {
	return []string{
		"JobId", "SrcComputeGroup", "DstComputeGroup", "Status", "Type", "SyncMode", "CreateTime", "StartTime",
		"FinishBatch", "AllBatch", "FinishTime", "ErrMsg", "Tables",
		"ETASeconds", "Blocks", "Bytes", "FailedParts", "Warning",
	}
}

func (s showJobs) run(_ context.Context, of *session) ([]row, error) {
	names := make(map[string]string)
	for _, g := range of.server.directory.Groups() {
		names[g.ID] = g.Name
	}
	var rows []row
	for _, j := range of.server.directory.Jobs() {
		if s.id != 0 && j.ID != s.id {
			continue
		}
		mode, eta := "ONCE", sqltypes.NULL
		if j.Periodic() {
			mode = fmt.Sprintf("PERIODIC (%ds)", j.IntervalS)
		}
		if left := j.ETA(time.Now()); left > 0 {
			eta = num(int64(math.Ceil(left.Seconds())))
		}
		rows = append(rows, row{
			num(j.ID), str(names[j.SrcGroup]), str(names[j.DstGroup]), str(string(j.Status)), str(string(j.Type)), str(mode),
			when(j.Created), when(j.Started), num(j.FinishBatch), num(j.AllBatch), when(j.Finished), str(j.Err), str(jobTables(&j)),
			eta, num(j.Blocks), size(j.Bytes), num(j.FailedParts), str(j.Warning),
		})
	}
	if s.id != 0 && rows == nil {
		return nil, fmt.Errorf("%w warm-up job %d", placement.ErrUnknown, s.id)
	}
	return rows, nil
}

// jobTables says what a job is about, unless that is a whole group.
func jobTables(j *placement.Job) string {
	const most = 20
	switch j.Type {
	case placement.JobPrefix:
		return "s3://" + j.Prefix.Bucket + "/" + j.Prefix.Key
	case placement.JobTablet:
		text := strings.Trim(fmt.Sprint(j.Tablets[:min(most, len(j.Tablets))]), "[]")
		if len(j.Tablets) > most {
			text += fmt.Sprintf(" … (%d tablets)", len(j.Tablets))
		}
		return text
	}
	return ""
}
