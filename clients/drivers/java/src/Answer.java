/** The answer to the client; headers as JSON. */
record Answer(int status, String headers, byte[] body) {
    static final String JSON = "{\"Content-Type\": \"application/json\"}";
    static final String PROBLEM = "{\"Content-Type\": \"application/problem+json\"}";
}
