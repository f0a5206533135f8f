package idempotency.postgres;

import java.util.UUID;
import java.util.function.IntPredicate;

/**
 * The value of an {@code Idempotency-Key} field, read as {@code idem_parse_key} does: a String of RFC 9651,
 * whose parameters are checked and dropped, or a bare value of visible ASCII characters without quotes,
 * backslashes, commas and semicolons.
 */
public final class Key {
    private static final int LONGEST = 255;
    private static final int END = -1;

    private final String field;
    private int at;

    private Key(String field) {
        this.field = field;
    }

    /** The key, or null if the field has none. */
    public static String parse(String field) {
        String text = trim(field);
        String key = text;
        if (text.startsWith("\"")) {
            Key in = new Key(text);
            key = in.text();
            if (key == null || !in.parameters() || in.peek() != END) {
                return null;
            }
        } else if (!text.chars().allMatch(Key::isBare)) {
            return null;
        }
        return key.isEmpty() || key.length() > LONGEST || key.chars().allMatch(c -> c == ' ') ? null : key;
    }

    /** The key as a String of RFC 9651. */
    public static String format(String key) {
        return '"' + key.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** A UUID of version 7: keys of one moment lie together in an index. */
    public static String generate() {
        UUID random = UUID.randomUUID();
        long high = System.currentTimeMillis() << 16 | 0x7000 | random.getMostSignificantBits() & 0xfff;
        return new UUID(high, random.getLeastSignificantBits()).toString();
    }

    /** The white space that HTTP allows around a value; strip() would remove more. */
    private static String trim(String field) {
        int from = 0;
        int to = field.length();
        while (from < to && isBlank(field.charAt(from))) {
            from++;
        }
        while (to > from && isBlank(field.charAt(to - 1))) {
            to--;
        }
        return field.substring(from, to);
    }

    private static boolean isBlank(int c) {
        return c == ' ' || c == '\t';
    }

    private static boolean isPrintable(int c) {
        return ' ' <= c && c <= '~';
    }

    private static boolean isBare(int c) {
        return isPrintable(c) && c != ' ' && "\"\\,;".indexOf(c) < 0;
    }

    private static boolean isDigit(int c) {
        return '0' <= c && c <= '9';
    }

    private static boolean isLower(int c) {
        return 'a' <= c && c <= 'z';
    }

    private static boolean isAlpha(int c) {
        return isLower(c | 0x20);
    }

    private static boolean isHex(int c) {
        return isDigit(c) || 'a' <= c && c <= 'f';
    }

    public static boolean isToken(int c) {
        return isAlpha(c) || isDigit(c) || c > 0 && "!#$%&'*+-.^_`|~".indexOf(c) >= 0;
    }

    // The rest is section 4.2 of RFC 9651.

    private int peek() {
        return at < field.length() ? field.charAt(at) : END;
    }

    private int next() {
        int c = peek();
        at += c == END ? 0 : 1;
        return c;
    }

    private boolean take(char c) {
        boolean there = peek() == c;
        at += there ? 1 : 0;
        return there;
    }

    private int skip(IntPredicate kind) {
        int from = at;
        while (at < field.length() && kind.test(field.charAt(at))) {
            at++;
        }
        return at - from;
    }

    private String text() {
        StringBuilder out = new StringBuilder();
        take('"');
        for (int c = next(); c != END; c = next()) {
            if (c == '"') {
                return out.toString();
            }
            if (c == '\\') {
                c = next();
                if (c != '"' && c != '\\') {
                    return null;
                }
            }
            if (!isPrintable(c)) {
                return null;
            }
            out.append((char) c);
        }
        return null;
    }

    private boolean parameters() {
        while (take(';')) {
            skip(c -> c == ' ');
            if (!isLower(peek()) && peek() != '*') {
                return false;
            }
            skip(c -> isLower(c) || isDigit(c) || "_-.*".indexOf(c) >= 0);
            if (take('=') && !bareItem()) {
                return false;
            }
        }
        return true;
    }

    private boolean bareItem() {
        int c = peek();
        if (isDigit(c) || c == '-') {
            return number(true);
        }
        if (isAlpha(c) || c == '*') {
            return skip(each -> isToken(each) || each == ':' || each == '/') > 0;
        }
        switch (c) {
            case '"':
                return text() != null;
            case ':':
                return bytes();
            case '?':
                next();
                return take('0') || take('1');
            case '@': // a Date
                next();
                return number(false);
            case '%':
                return displayString();
            default:
                return false;
        }
    }

    /** An Integer has up to 15 digits; a Decimal up to 12, a point, and 1 to 3 more. */
    private boolean number(boolean decimalToo) {
        take('-');
        int whole = skip(Key::isDigit);
        if (!decimalToo || !take('.')) {
            return 1 <= whole && whole <= 15;
        }
        int fraction = skip(Key::isDigit);
        return 1 <= whole && whole <= 12 && 1 <= fraction && fraction <= 3;
    }

    /** Missing padding is allowed, as the RFC advises. */
    private boolean bytes() {
        take(':');
        skip(c -> isAlpha(c) || isDigit(c) || c == '+' || c == '/');
        skip(c -> c == '=');
        return take(':');
    }

    private boolean displayString() {
        if (!take('%') || !take('"')) {
            return false;
        }
        for (int c = next(); c != END; c = next()) {
            if (c == '"') {
                return true;
            }
            if (!isPrintable(c) || c == '%' && !(isHex(next()) && isHex(next()))) {
                return false;
            }
        }
        return false;
    }
}
