package idempotency.postgres;

import java.util.HexFormat;

/** The request under execution, and the number of the attempt. */
public record Execution(String key, String scope, String principal, int attempt) {
    /**
     * A key for a request to another service, derived from this request's key and a name: after a crash the
     * same call is made with the same key.
     */
    public String derived(String name) {
        String parts = String.join(":", escaped(scope), escaped(principal), escaped(key), escaped(name));
        return HexFormat.of().formatHex(Identity.sha256().digest(Identity.utf8(parts)));
    }

    private static String escaped(String part) {
        return part == null ? "" : part.replace("\\", "\\\\").replace(":", "\\:");
    }
}
