package idempotency.postgres;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.List;

/**
 * What makes two requests the same one: JSON, compared in its canonical form without the fields in {@code
 * exclude}; or a digest of what is not JSON.
 */
public record Identity(String json, byte[] digest, String method, String target, List<String> exclude) {
    static final Identity NONE = new Identity(null, null, null, null, List.of());

    static Identity ofJson(String json, List<String> exclude) {
        return new Identity(json, null, null, null, exclude);
    }

    /** Of a request whose body is JSON. */
    public static Identity ofJson(String method, String target, String json, List<String> exclude) {
        return new Identity(json, null, method, target, exclude);
    }

    /** Of a request whose body is something else. */
    public static Identity ofBytes(String method, String target, String mediaType, byte[] body) {
        return new Identity(null, digest(utf8(method), utf8(target), utf8(mediaType), body), method, target, List.of());
    }

    /** The same request, of which something else is compared. */
    public Identity comparing(byte[] content) {
        return new Identity(json, sha256().digest(content), method, target, exclude);
    }

    /** As docs/fingerprint.md has it, of more parts. */
    private static byte[] digest(byte[]... parts) {
        MessageDigest hash = sha256();
        hash.update(utf8("idempotency fingerprint 1\n"));
        for (byte[] part : parts) {
            hash.update(utf8(part.length + ":"));
            hash.update(part);
            hash.update((byte) '\n');
        }
        return hash.digest();
    }

    static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException everyPlatformHasIt) {
            throw new IllegalStateException(everyPlatformHasIt);
        }
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
