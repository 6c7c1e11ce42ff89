package admin

import (
	"errors"
	"strconv"

	"github.com/valyala/fasthttp"

	"headstart/cmd/config"
)

// configuration returns the routes that show and change a node's keys.
func configuration(set *config.Set) []route {
	c := settings{set}
	return []route{
		{"GET", "/api/show_config", "", Open, c.show},
		{"POST", "/api/update_config", "", Changing, c.update},
	}
}

type settings struct{ set *config.Set }

// update serves POST /api/update_config?key=value[&key=value…][&persist=true].
func (c settings) update(ctx *fasthttp.RequestCtx) {
	values, persist, err := updates(ctx.QueryArgs())
	if err != nil {
		wrongArgument(ctx, err)
		return
	}
	if err = c.set.Update(values, persist); err == nil {
		done(ctx)
		return
	}
	if _, ok := errors.AsType[*config.Error](err); !ok {
		fail(ctx, fasthttp.StatusInternalServerError, "not_persisted", "nothing has been changed: "+err.Error())
		return
	}
	fail(ctx, fasthttp.StatusBadRequest, "bad_config", err.Error())
}

// updates reads the query of update_config. A key that comes twice is refused:
// which one should hold is anybody's guess.
func updates(args *fasthttp.Args) (values map[string]string, persist bool, err error) {
	values = map[string]string{}
	if persist, err = flag(args, "persist"); err != nil {
		return nil, false, err
	}
	for k, v := range args.All() {
		key := string(k)
		if _, twice := values[key]; twice {
			return nil, false, errors.New("key " + quote(key) + " is given twice")
		}
		values[key] = string(v)
	}
	delete(values, "persist")
	if len(values) == 0 {
		return nil, false, errors.New("want at least one key=value")
	}
	return values, persist, nil
}

// show serves GET /api/show_config[?conf_item=key]: rows of name, type, value
// and whether the key can be changed, all texts as in the reference system.
func (c settings) show(ctx *fasthttp.RequestCtx) {
	items := c.set.Show()
	if name := string(ctx.QueryArgs().Peek("conf_item")); name != "" {
		item, err := c.set.ShowKey(name)
		if err != nil {
			fail(ctx, fasthttp.StatusNotFound, "unknown_key", err.Error())
			return
		}
		items = []config.Item{item}
	}
	rows := make([][4]string, len(items))
	for i, it := range items {
		rows[i] = [4]string{it.Name, it.Type, it.Value, strconv.FormatBool(it.Mutable)}
	}
	answer(ctx, rows)
}
