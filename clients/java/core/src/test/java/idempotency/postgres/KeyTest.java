package idempotency.postgres;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class KeyTest {
    @ParameterizedTest
    @ValueSource(strings = {"\"k\"", "k", " \t \"k\" \t ", "\"k\";v=1", "\"k\"; a; b=\"x;y\\\"\\\\\"",
            "\"k\";a=1.5;b=tok*;c=:aGk=:;d=?1;e=@17;f=%\"f%c3%bc\"", "\"k\";*x=1"})
    void isRead(String field) {
        assertEquals("k", Key.parse(field));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", " ", "\"\"", "\"  \"", "\"k", "k\"", "\"k\" x", "\"k\";", "\"k\";A=1", "\"k\" ;a", "\"k\";a= 1",
            "\"k\";a=(1)", "\"k\";a=1.2345", "\"k\";a=1234567890123456", "\"k\\n\"", "k;a=1", "k\\", "k x", "\"k\", \"x\"",
            "\"k\";a=:a=k:", "\"k\";a=%\"%C3\"", "\"k\";a=?2", "\"k\";a=@1.5", "\"k\u00e4\"", "k\u00e4", "\"k\u0000\"", "k\u007f"})
    void isNone(String field) {
        assertNull(Key.parse(field));
    }

    @Test
    void nothingIsUnescaped() {
        assertEquals("%22k%2D1%22", Key.parse("%22k%2D1%22"));
        assertEquals("k%2D1", Key.parse("\"k%2D1\""));
    }

    @Test
    void hasItsLimit() {
        assertEquals(255, Key.parse("x".repeat(255)).length());
        assertNull(Key.parse("x".repeat(256)));
        assertNull(Key.parse('"' + "x".repeat(256) + '"'));
    }

    @Test
    void isWrittenAsItIsRead() {
        for (String key : new String[] {"k", "a\"b\\c", "with, comma; and space"}) {
            assertEquals(key, Key.parse(Key.format(key)));
        }
    }
}
