import java.util.Map;

interface Driver extends AutoCloseable {
    String version();

    Answer pay(String key, String tenant, String request) throws Exception;

    /** The first row of a statement without parameters, in autocommit. */
    Map<String, Object> row(String sql) throws Exception;

    void tries(Tries tries) throws Exception;
}
