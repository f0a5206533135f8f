package server;

import idempotency.postgres.Caller;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Executes COUNT orders by the helper for callers, and prints each key with the last answer's status. */
public final class Call {
    private Call() {
    }

    public static void main(String[] arguments) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0])).timeout(Duration.ofSeconds(5))
                .header("Authorization", "Bearer " + arguments[1]).header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{\"effect\": \"called\"}")).build();
        ExecutorService workers = Executors.newFixedThreadPool(4);
        List<Future<String>> orders = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(arguments[2]); i++) {
            orders.add(workers.submit(() -> order(request)));
        }
        workers.shutdown();
        for (Future<String> order : orders) {
            System.out.println(order.get());
        }
    }

    /** By a connection of its own. */
    private static String order(HttpRequest request) throws IOException, InterruptedException {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        Caller caller = new Caller(client, "Idempotency-Key", 30, Duration.ofMillis(20), Duration.ofMillis(500), Duration.ofMinutes(2));
        String key = Caller.newKey();
        return key + " " + caller.send(key, request, HttpResponse.BodyHandlers.ofString()).statusCode();
    }
}
