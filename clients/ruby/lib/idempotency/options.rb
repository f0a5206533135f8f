# frozen_string_literal: true

module Idempotency
  # The options of a route, checked where it is made. Times are seconds, or durations of ActiveSupport.
  class Options
    Check = Struct.new(:wanted, :fits)
    def self.check(wanted, &fits) = Check.new(wanted, fits)

    SECONDS = check("seconds above 0") { |value| value.is_a?(Numeric) && value.positive? && value.to_f.finite? }
    COUNT = check("a whole number of at least 0") { |value| value.is_a?(Integer) && !value.negative? }
    CALL = check("callable") { |value| value.respond_to?(:call) }
    FLAG = check("true or false") { |value| [true, false].include?(value) }
    TEXTS = check("an array of strings") { |value| value.is_a?(Array) && value.all?(String) }
    TEXT = check("a string") { |value| value.is_a?(String) && !value.empty? }
    HEADER = check("the name of a header field") do |value|
      value.is_a?(String) && value.match?(/\A[!\#$%&'*+\-.^_`|~0-9A-Za-z]+\z/)
    end
    STATUSES = check("a hash of statuses from 400 to 599 by outcome (#{Contract::PROBLEMS.keys.join(", ")})") do |value|
      value.is_a?(Hash) && value.all? do |word, status|
        Contract::PROBLEMS.key?(word.to_s) && status.is_a?(Integer) && status.between?(400, 599)
      end
    end
    MISSING_KEY = %i[refuse pass generate derive].freeze
    NONE = Object.new

    # Each option's check and default.
    KNOWN = {
      principal: [check("a function of the request") { |value| value.respond_to?(:call) }, NONE],
      scope: [TEXT, nil],
      methods: [TEXTS, %w[POST PATCH].freeze],
      missing_key: [check("one of #{MISSING_KEY.join(", ")}") { |value| MISSING_KEY.include?(value) }, :refuse],
      window: [SECONDS, Contract::WINDOW_MS / 1000.0],
      exclude: [TEXTS, [].freeze],
      fingerprint: [CALL, nil],
      ttl: [SECONDS, nil],
      lease: [SECONDS, Contract::LEASE_MS / 1000.0],
      wait: [check("seconds") { |value| value.is_a?(Numeric) && !value.negative? && value.to_f.finite? }, nil],
      keep: [CALL, KEEP_BY_DEFAULT],
      verdict: [CALL, nil],
      handler_timeout: [SECONDS, nil],
      statuses: [STATUSES, {}.freeze],
      key_header: [HEADER, "Idempotency-Key"],
      replay_header: [HEADER, "Idempotent-Replayed"],
      echo_key: [FLAG, false],
      max_request_bytes: [COUNT, Contract::MAX_REQUEST_BYTES],
      max_answer_bytes: [COUNT, Contract::MAX_ANSWER_BYTES],
      omit_large_answers: [FLAG, false],
      attempts: [check("a whole number of at least 1") { |value| value.is_a?(Integer) && value.positive? }, Contract::ATTEMPTS],
      database_timeout: [SECONDS, Contract::DATABASE_TIMEOUT_MS / 1000.0],
      unprotected_without_database: [FLAG, false],
      on_execute: [CALL, nil], on_replay: [CALL, nil], on_refusal: [CALL, nil], on_lease_lost: [CALL, nil]
    }.freeze

    attr_reader(*(KNOWN.keys - [:methods]))

    def initialize(**given)
      Options.read(KNOWN, given) { |name, value| instance_variable_set(:"@#{name}", value) }
      @statuses = @statuses.transform_keys(&:to_s)
    end

    # The block gets each option's name and value.
    def self.read(known, given)
      unknown = given.keys - known.keys
      raise ArgumentError, "idempotency: no option `#{unknown.first}` among #{known.keys.join(", ")}" if unknown.any?

      known.each do |name, (check, default)|
        value = given.fetch(name, default)
        fits = value.nil? ? default.nil? : check.fits.call(value)
        raise ArgumentError, "idempotency: `#{name}` has to be #{check.wanted}" unless fits

        yield name, check.equal?(SECONDS) ? value&.to_f : value
      end
    end

    # Whether requests with this method need a key.
    def concern?(method) = @methods.include?(method)
  end
end
