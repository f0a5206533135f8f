package idempotency.postgres;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/**
 * Two requests with the same identity are the same request. The identity is JSON, compared in its canonical
 * form without the fields in {@code exclude}; or a digest of a body that is not JSON.
 */
public record Identity(String json, String mediaType, byte[] digest, String method, String target, List<String> exclude) {
    static final Identity NONE = new Identity(null, null, null, null, null, List.of());

    static Identity ofJson(String json, List<String> exclude) {
        return new Identity(json, "application/json", null, null, null, exclude);
    }

    /** For a request whose body is JSON. */
    public static Identity ofJson(String method, String target, String mediaType, String json, List<String> exclude) {
        return new Identity(json, mediaType, null, method, target, exclude);
    }

    /** For a request with another body. */
    public static Identity ofBytes(String method, String target, String mediaType, byte[] body) {
        byte[] digest = digest(utf8(method), utf8(target), typeOf(mediaType), body);
        return new Identity(null, mediaType, digest, method, target, List.of());
    }

    /** For a form. Its boundary differs in each repeat, so its parts count: each one's name, file name, type and content. */
    public static Identity ofParts(String method, String target, String mediaType, List<byte[]> parts) {
        List<byte[]> all = new ArrayList<>(List.of(utf8(method), utf8(target), typeOf(mediaType)));
        all.addAll(parts);
        return new Identity(null, mediaType, digest(all.toArray(byte[][]::new)), method, target, List.of());
    }

    /** The same request with another identity. */
    public Identity comparing(byte[] content) {
        return new Identity(json, mediaType, sha256().digest(content), method, target, exclude);
    }

    /** Whether the failure means that jsonb cannot store this JSON: a NUL, or a number that is too large. */
    boolean isRefusedByJsonb(Throwable failure) {
        return json != null && Set.of("22P05", "22003").contains(DatabaseFailure.sqlState(failure));
    }

    /** The same request, with a digest in place of JSON that jsonb refuses. */
    Identity asBytes() {
        byte[] instead = digest == null ? digest(utf8(method), utf8(target), typeOf(mediaType), utf8(json)) : digest;
        return new Identity(null, mediaType, instead, method, target, List.of());
    }

    /** A media type that is missing is a missing part, which is not an empty one. */
    private static byte[] typeOf(String mediaType) {
        return mediaType == null || mediaType.isEmpty() ? null : utf8(mediaType);
    }

    /** The digest of docs/fingerprint.md, over more parts. */
    private static byte[] digest(byte[]... parts) {
        MessageDigest hash = sha256();
        hash.update(utf8("idempotency fingerprint 1\n"));
        for (byte[] part : parts) {
            hash.update(utf8(part == null ? "-" : part.length + ":"));
            hash.update(part == null ? new byte[0] : part);
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
        return text == null ? new byte[0] : text.getBytes(StandardCharsets.UTF_8);
    }
}
