// Runs the reference's statements with mysql2: client.js HOST PORT.
const assert = require('assert');
const mysql = require('mysql2/promise');

(async () => {
  const [host, port] = process.argv.slice(2);
  const db = await mysql.createConnection({ host, port: Number(port), user: 'root', password: '' });
  const [backends] = await db.query('SHOW BACKENDS');
  assert.strictEqual(backends.length, 2);
  assert.ok(backends[0].Tag.includes('"compute_group_name" : "write_group"'));
  const [config] = await db.execute('SHOW BACKEND CONFIG LIKE ? FROM ?', ['enable_cache_read_from_peer', backends[0].BackendId]);
  assert.deepStrictEqual(config.map((r) => r.Value), ['false']);
  await db.query("ADMIN SET ALL BACKENDS CONFIG ('peer_race_hedge_delay_ms' = '30')");
  const [changed] = await db.query("SHOW BACKEND CONFIG LIKE 'peer_race_hedge_delay_ms'");
  assert.deepStrictEqual(changed.map((r) => r.Value), ['30', '30']);
  await assert.rejects(db.query('SELECT * FROM t'), (e) => e.errno === 1064 && e.message.includes('SHOW BACKENDS'));
  await db.ping();
  await db.end();
  await assert.rejects(mysql.createConnection({ host, port: Number(port), user: 'root', password: 'wrong' }), (e) => e.errno === 1045);
  console.log('mysql2 ok');
})().catch((e) => { console.error(e); process.exit(1); });
