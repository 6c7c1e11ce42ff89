package main

import (
	"os"
	"strings"
	"testing"

	"headstart/cmd/config"
)

func TestBudgetIsTheDocumentsBudget(t *testing.T) {
	conf, err := config.FromMap(config.BE, map[string]string{"brpc_peer_fetch_pool_max_queue_size": "4096"})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/BUDGETS.md")
	if err != nil {
		t.Fatal(err)
	}
	if sum := budgetOf(conf).String(); !strings.Contains(string(doc), sum) {
		t.Errorf("docs/BUDGETS.md does not have this sum:\n%s", sum)
	}
}
