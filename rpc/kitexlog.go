package rpc

import (
	"bytes"
	"context"
	"log/slog"

	"github.com/cloudwego/kitex/pkg/klog"
)

// LogKitex sends what Kitex has to say to l. Kitex has one logger for the whole
// process, so this is for cmd, before the first server starts.
func LogKitex(l *slog.Logger) { klog.SetOutput(kitexLog{l}) }

// kitexLog takes Kitex's lines, each of which comes in one Write and has its
// level in brackets behind date and file.
type kitexLog struct{ to *slog.Logger }

// Write implements io.Writer.
func (k kitexLog) Write(line []byte) (int, error) {
	_, rest, _ := bytes.Cut(line, []byte("["))
	name, text, ok := bytes.Cut(rest, []byte("] "))
	if !ok {
		name, text = nil, line
	}
	level := slog.LevelDebug // what Kitex calls info is news to nobody else
	switch string(name) {
	case "Warn":
		level = slog.LevelWarn
	case "Error", "Fatal":
		level = slog.LevelError
	}
	k.to.Log(context.Background(), level, string(bytes.TrimSpace(text)))
	return len(line), nil
}
