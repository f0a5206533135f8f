# frozen_string_literal: true

require "json"
require "time"
require "idempotency/key"

module Idempotency
  # For those who call a service with idempotency keys: one key for all sendings of a request, until its answer is
  # final. Works with the responses of net/http, and with any others that have `code` or `status`, `[]` or `headers`,
  # and `body`.
  module Caller
    # The answer is not known yet. A later `call` with the same key goes on; another key could do the work twice.
    class NotFinal < StandardError
      attr_reader :key, :response

      def initialize(key, response)
        @key = key
        @response = response
        super("no final answer under the key #{key}")
      end
    end

    # The limits of all sendings. Times are seconds; `base` is the longest first pause, `cap` that of any.
    Pauses = Struct.new(:attempts, :base, :cap, :give_up_after, keyword_init: true) do
      def initialize(attempts: 8, base: 0.2, cap: 30, give_up_after: 300) = super
    end

    OPEN = %w[in-progress unknown retry-later unavailable handler-late].freeze
    FINAL = %w[failed exhausted].freeze

    module_function

    # Sends a request until its answer is final: after pauses that grow, no shorter than Retry-After.
    #
    # The block gets the key's header field, and makes the same request each time, with a timeout. `store` gets the key
    # before the first sending: after a crash the application goes on with the same one, as `key`. `errors` are those of
    # the block that mean that there was no answer: the request may have taken effect.
    def call(key: nil, store: nil, errors: [StandardError], pauses: Pauses.new, key_header: "Idempotency-Key")
      key ||= Key.generate
      store&.call(key)
      began = now
      1.step do |sent|
        begin
          response = yield(key_header => Key.quote(key))
          return response if final?(response)
        rescue *errors => failure
          response = nil
        end
        sleep(delay(sent, response, pauses, began) || raise(NotFinal.new(key, response), cause: failure))
      end
    end

    # Whether a repeat with the same key would get this answer again.
    def final?(response)
      return true if field(response, "Idempotent-Replayed") == "true"

      word = problem(response)
      FINAL.include?(word) || !(OPEN.include?(word) || [[408, 425, 429], 500..].any? { _1.include?(status(response)) })
    end

    def status(response) = (response.respond_to?(:code) ? response.code : response.status).to_i

    def field(response, name)
      headers = response.respond_to?(:headers) ? response.headers : response
      headers[name] || (headers[name.downcase] if headers.is_a?(Hash))
    end

    def problem(response)
      return unless field(response, "Content-Type").to_s.start_with?("application/problem+json")

      JSON.parse(response.body.to_s)["type"].to_s[%r{/problems/idempotency/([a-z-]+)\z}, 1]
    rescue JSON::ParserError, TypeError
      nil
    end

    # Seconds or a date, as seconds from now.
    def retry_after(response)
      said = response ? field(response, "Retry-After").to_s : ""
      said.match?(/\A\d+\z/) ? said.to_i : [0, Time.httpdate(said) - Time.now].max
    rescue ArgumentError
      0
    end

    # Backoff with full jitter, on top of what the answer asks for; nil where the limits are reached.
    def delay(sent, response, pauses, began)
      delay = retry_after(response) + (rand * [pauses.cap, pauses.base * (2**(sent - 1))].min)
      delay if sent < pauses.attempts && now + delay <= began + pauses.give_up_after
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    private_class_method :status, :field, :problem, :delay, :now
  end
end
