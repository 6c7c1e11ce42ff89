import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;

/** Runs the reference's statements with MySQL Connector/J: Client HOST PORT. */
public class Client {
    static void check(boolean ok, String what) {
        if (!ok) throw new AssertionError(what);
    }

    public static void main(String[] args) throws Exception {
        String url = "jdbc:mysql://" + args[0] + ":" + args[1] + "/?sslMode=DISABLED&useServerPrepStmts=";
        for (boolean prepared : new boolean[] {false, true}) {
            try (Connection db = DriverManager.getConnection(url + prepared, "root", "")) {
                check(db.isValid(5), "ping");
                String id;
                try (Statement s = db.createStatement(); ResultSet r = s.executeQuery("SHOW BACKENDS")) {
                    check(r.next(), "a backend");
                    id = r.getString("BackendId");
                    check(r.getBoolean("Alive"), "alive");
                    check(r.getString("Tag").contains("\"compute_group_id\" : \"cg_write_01\""), r.getString("Tag"));
                }
                try (PreparedStatement s = db.prepareStatement("SHOW BACKEND CONFIG LIKE ? FROM ?")) {
                    s.setString(1, "enable_cache_read_from_peer");
                    s.setString(2, id);
                    try (ResultSet r = s.executeQuery()) {
                        check(r.next() && r.getString("Value").equals("false") && !r.next(), "one key");
                    }
                }
                db.setAutoCommit(false);
                db.commit();
                try (Statement s = db.createStatement()) {
                    s.executeQuery("SELECT * FROM t");
                    check(false, "an unknown statement was taken");
                } catch (SQLException e) {
                    check(e.getErrorCode() == 1064 && e.getMessage().contains("SHOW BACKENDS"), e.getMessage());
                }
            }
        }
        try {
            DriverManager.getConnection(url + false, "root", "wrong");
            check(false, "a wrong password got in");
        } catch (SQLException e) {
            check(e.getErrorCode() == 1045, e.getMessage());
        }
        System.out.println("Connector/J " + DriverManager.getDriver(url + false).getMajorVersion() + "." + DriverManager.getDriver(url + false).getMinorVersion() + " ok");
    }
}
