package idempotency.postgres.servlet;

import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.WriteListener;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The body of an answer. A body too large to keep goes to a file if the route may store only the status;
 * otherwise writing fails.
 */
final class Spool implements AutoCloseable {
    private final long limit;
    private final boolean spill;
    private final ByteArrayOutputStream kept = new ByteArrayOutputStream();
    private Path file;
    private OutputStream rest;
    private long restSize;
    private boolean tooLarge;
    private volatile boolean frozen;

    Spool(long limit, boolean spill) {
        this.limit = limit;
        this.spill = spill;
    }

    static final class TooLarge extends IOException {
        TooLarge() {
            super("the answer is too large to be kept");
        }
    }

    /** From here on nothing changes it: a thread of the handler may go on. */
    synchronized void freeze() {
        frozen = true;
    }

    void abandon() {
        frozen = true;
    }

    synchronized void replace(byte[] bytes) {
        kept.reset();
        kept.writeBytes(bytes);
    }

    synchronized void write(byte[] bytes, int from, int count) throws IOException {
        if (frozen) {
            throw new IOException("idempotency: the handler has returned, and its answer is complete");
        }
        if (rest == null && kept.size() + (long) count <= limit) {
            kept.write(bytes, from, count);
            return;
        }
        tooLarge = true;
        if (!spill) {
            throw new TooLarge();
        }
        if (rest == null) {
            file = Files.createTempFile("idempotency-", null);
            rest = Files.newOutputStream(file);
        }
        rest.write(bytes, from, count);
        restSize += count;
    }

    synchronized boolean isTooLarge() {
        return tooLarge && !spill;
    }

    synchronized boolean isSpilled() {
        return rest != null;
    }

    synchronized byte[] kept() {
        return kept.toByteArray();
    }

    synchronized long size() {
        return kept.size() + restSize;
    }

    synchronized void writeTo(OutputStream out) throws IOException {
        kept.writeTo(out);
        if (rest != null) {
            rest.flush();
            Files.copy(file, out);
        }
    }

    /** A body that was too large stays so: a reset follows an error. */
    synchronized void reset() {
        if (frozen) {
            return;
        }
        kept.reset();
        close();
        restSize = 0;
    }

    @Override
    public synchronized void close() {
        try {
            if (rest != null) {
                rest.close();
                rest = null;
                Files.deleteIfExists(file);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    ServletOutputStream stream() {
        return new ServletOutputStream() {
            @Override
            public void write(int b) throws IOException {
                Spool.this.write(new byte[] {(byte) b}, 0, 1);
            }

            @Override
            public void write(byte[] bytes, int from, int count) throws IOException {
                Spool.this.write(bytes, from, count);
            }

            @Override
            public boolean isReady() {
                return true;
            }

            @Override
            public void setWriteListener(WriteListener listener) {
                throw new IllegalStateException("idempotency: a protected route writes in the thread that it is called in");
            }
        };
    }
}
