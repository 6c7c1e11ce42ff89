"""Runs the reference's statements with PyMySQL: client.py HOST PORT."""
import sys

import pymysql

db = pymysql.connect(host=sys.argv[1], port=int(sys.argv[2]), user="root", password="", cursorclass=pymysql.cursors.DictCursor)
with db.cursor() as c:
    c.execute("SHOW BACKENDS")
    rows = c.fetchall()
    assert len(rows) == 2 and rows[0]["Alive"] == "true", rows
    assert rows[0]["Tag"].startswith('{"cloud_unique_id" : "1:xxx:yyy", "compute_group_id" : "cg_write_01"'), rows
    c.execute("SHOW BACKEND CONFIG LIKE %s FROM %s", ("enable_cache_read_from_peer", rows[0]["BackendId"]))
    assert [r["Value"] for r in c.fetchall()] == ["false"]
    c.execute("ALTER COMPUTE GROUP write_group PROPERTIES ('balance_type' = 'sync_warmup')")
    c.execute("SHOW COMPUTE GROUPS")
    assert "balance_type=sync_warmup" in c.fetchone()["Properties"]
    try:
        c.execute("SELECT * FROM t")
        raise SystemExit("an unknown statement was taken")
    except pymysql.err.ProgrammingError as e:
        assert e.args[0] == 1064 and "SHOW BACKENDS" in e.args[1], e
db.commit()
db.close()
try:
    pymysql.connect(host=sys.argv[1], port=int(sys.argv[2]), user="root", password="wrong")
    raise SystemExit("a wrong password got in")
except pymysql.err.OperationalError as e:
    assert e.args[0] == 1045, e
print("PyMySQL", pymysql.VERSION_STRING, "ok")
