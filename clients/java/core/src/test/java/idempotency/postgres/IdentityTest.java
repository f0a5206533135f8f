package idempotency.postgres;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import java.util.List;
import org.junit.jupiter.api.Test;

class IdentityTest {
    private static final String HEADING = "idempotency fingerprint 1\n";

    private static byte[] hash(String text) {
        return Identity.sha256().digest(Identity.utf8(HEADING + text));
    }

    private static byte[] digest(String mediaType) {
        return Identity.ofBytes("POST", "/a", mediaType, Identity.utf8("x")).digest();
    }

    @Test
    void aBodyCountsWithItsMediaType() {
        assertArrayEquals(hash("4:POST\n2:/a\n10:text/plain\n1:x\n"), digest("text/plain"));
    }

    /** As the other clients write it: a part that is missing is not an empty one. */
    @Test
    void aMissingMediaTypeIsAMissingPart() {
        assertArrayEquals(hash("4:POST\n2:/a\n-\n1:x\n"), digest(null));
        assertArrayEquals(hash("4:POST\n2:/a\n-\n1:x\n"), digest(""));
    }

    @Test
    void theSameInAForm() {
        byte[] form = Identity.ofParts("POST", "/a", "multipart/form-data",
                List.of(Identity.utf8("n"), Identity.utf8("f"), Identity.utf8("text/plain"), Identity.utf8("x"))).digest();
        assertArrayEquals(hash("4:POST\n2:/a\n19:multipart/form-data\n1:n\n1:f\n10:text/plain\n1:x\n"), form);
    }
}
