package grow

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"text/tabwriter"
)

// List prices of AWS, us-east-1: a GET of S3 Standard, and a gigabyte between two
// availability zones, which both ends pay for.
const (
	usdPerGET     = 0.0004 / 1000
	usdPerCrossGB = 2 * 0.01
	// priced is how many reads a cost is given for, pricedBlock the block size.
	priced      = 1_000_000
	pricedBlock = 1 << 20
)

func played(t *testing.T, s scale, peers bool) (c counts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if c, err = play(s, peers, t.TempDir()); err != nil {
			t.Fatal(err)
		}
	})
	return c
}

// With peers that fill, what a block costs does not grow with the BEs that read
// it; without, it does.
func TestS34_GETsWithPeersDoNotGrowWithBEs(t *testing.T) {
	gets := func(bes int, peers bool) int64 {
		c := played(t, scale{bes: bes, tablets: 2, objects: 40}, peers)
		if c.reads == 0 || c.gets > c.reads || peers != (c.farBytes > 0) || peers != (c.lookups > 0) {
			t.Errorf("%d BEs, peers %v: %+v", bes, peers, c)
		}
		return c.gets
	}
	aloneFew, aloneMany, few, many := gets(4, false), gets(16, false), gets(4, true), gets(16, true)
	t.Logf("GETs of 4 and 16 BEs: %d and %d without peers, %d and %d with", aloneFew, aloneMany, few, many)
	// Alone it is 4.0 times as many; with peers 1.6 to 2.1, by the order in which readers
	// of one moment come.
	if aloneMany < 3*aloneFew || 2*many > 5*few {
		t.Errorf("GETs of 4 and 16 BEs: %d and %d without peers, %d and %d with", aloneFew, aloneMany, few, many)
	}
}

// TestClusterGrows prints a table: GROW says how often each part is multiplied.
func TestClusterGrows(t *testing.T) {
	factor, err := strconv.Atoi(os.Getenv("GROW"))
	if err != nil || factor < 2 {
		t.Skip("a measurement: GROW=10 go test -run ClusterGrows -v ./bench/grow")
	}
	base := scale{name: "1x", bes: 8, tablets: 32, objects: 320}
	worlds := []scale{base, base, base, base}
	worlds[1].name, worlds[1].objects = fmt.Sprintf("%dx objects", factor), base.objects*factor
	worlds[2].name, worlds[2].tablets = fmt.Sprintf("%dx tablets", factor), min(base.tablets*factor, base.objects)
	worlds[3].name, worlds[3].bes = fmt.Sprintf("%dx BEs", factor), base.bes*factor
	fmt.Printf(`In virtual time: each BE reads %d %% of the objects, chosen at random, whole and block by block, %d at once, out of an empty
cache. Peers fill: the BE that serves a tablet reads object storage for the others. BEs alternate between two locations.
Cost of %d reads of blocks of 1 MiB at list price: %.4f USD for 1,000 GETs, %.2f USD for a GB between locations.

`, readPercent, readers, priced, usdPerGET*1000, usdPerCrossGB)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "\tBEs\ttablets\tobjects\tpeers\treads\tGETs\ta read\ta block\tcross reads\tlook-ups\ta BE and tablet\tUSD GETs\tUSD cross\t")
	for _, s := range worlds {
		for _, peers := range []bool{false, true} {
			c := played(t, s, peers)
			reads := float64(c.reads)
			perRead, cross := float64(c.gets)/reads, float64(c.farBytes)/blockSize/reads
			fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%v\t%d\t%d\t%.3f\t%.2f\t%.1f %%\t%d\t%.2f\t%.3f\t%.3f\t\n", s.name, s.bes, s.tablets, s.objects,
				map[bool]string{false: "no", true: "yes"}[peers], c.reads, c.gets, perRead, float64(c.gets)/float64(s.objects*objectBlocks),
				100*cross, c.lookups, float64(c.lookups)/float64(s.bes*s.tablets), perRead*priced*usdPerGET, cross*priced*pricedBlock/1e9*usdPerCrossGB)
		}
	}
	if err := out.Flush(); err != nil {
		t.Error(err)
	}
}
