# frozen_string_literal: true

module Idempotency
  # All statuses except those that another attempt may cure, and server faults.
  KEEP_BY_DEFAULT = ->(status) { status < 500 && !Contract::NOT_KEPT.include?(status) }

  # How work is run, and which of its answers are kept. Each value is checked. Times are seconds, or durations of
  # ActiveSupport.
  class Settings
    VERDICTS = %w[keep free unknown].freeze
    # What a value has to be, and whether one is that.
    SECONDS = ["seconds above 0", ->(value) { value.is_a?(Numeric) && value.positive? && value.to_f.finite? }].freeze
    COUNT = ["a whole number of at least 0", ->(value) { value.is_a?(Integer) && !value.negative? }].freeze
    POSITIVE = ["a whole number of at least 1", ->(value) { value.is_a?(Integer) && value.positive? }].freeze
    CALL = ["callable", ->(value) { value.respond_to?(:call) }].freeze
    TEXT = ["a string", ->(value) { value.is_a?(String) && !value.empty? }].freeze
    def self.one_of(*values) = ["one of #{values.join(", ")}", ->(value) { values.include?(value) }].freeze

    # Each one's check and default.
    KNOWN = {
      attempts: [POSITIVE, Contract::ATTEMPTS], database_timeout: [SECONDS, Contract::DATABASE_TIMEOUT_MS / 1000.0],
      keep: [CALL, KEEP_BY_DEFAULT], verdict: [CALL, nil],
      handler_timeout: [SECONDS, nil], lease: [SECONDS, Contract::LEASE_MS / 1000.0]
    }.freeze
    attr_reader(*KNOWN.keys)

    # A class derived from this one may know fewer: the others have their defaults.
    def initialize(**given)
      known = self.class::KNOWN
      unknown = given.keys - known.keys
      raise ArgumentError, "idempotency: no option `#{unknown.first}` among #{known.keys.join(", ")}" if unknown.any?

      Settings::KNOWN.merge(known).each do |name, (check, default)|
        value = given.fetch(name, default)
        none = value.nil? && default.nil?
        raise ArgumentError, "idempotency: `#{name}` has to be #{check.first}" unless none || check.last.call(value)

        instance_variable_set(:"@#{name}", check == SECONDS && !none ? value.to_f : value)
      end
    end

    # Only a route has hooks.
    def on_lease_lost = nil

    # Fields of answers that are not stored, besides those of the contract and of the scope's policy.
    def drop_headers = []

    # One of VERDICTS; `by_status` where the route has no opinion, and the status is one not to keep.
    def verdict_on(answer)
      return "keep" if answer.status.nil? # of a worker: done

      by_status = keep.call(answer.status) && !(answer.raised && answer.status >= 500)
      word = verdict&.call(answer) or return by_status ? "keep" : "by_status"
      return word.to_s if VERDICTS.include?(word.to_s)

      raise Error, "idempotency: `verdict` has to return #{VERDICTS.join(", ")} or nil, not #{word}"
    end

    # Whether a transaction with this answer commits.
    def commits?(answer) = %w[keep unknown].include?(verdict_on(answer))

    # Calls a hook, whose exception does not affect the work.
    def tell(hook, *arguments)
      public_send(hook)&.call(*arguments)
    rescue StandardError => error
      warn "idempotency: a hook has failed: #{error.full_message(highlight: false)}"
    end
  end

  # The options of a route, checked where it is made.
  class Options < Settings
    FLAG = one_of(true, false)
    TEXTS = ["an array of strings", ->(value) { value.is_a?(Array) && value.all?(String) }].freeze
    METHODS = ["an array of methods in upper case",
               ->(value) { TEXTS.last.call(value) && value.any? && value.all?(/\A[A-Z-]+\z/) }].freeze
    NAME = /\A[!\#$%&'*+\-.^_`|~0-9A-Za-z]+\z/
    HEADER = ["the name of a header field", ->(value) { value.is_a?(String) && value.match?(NAME) }].freeze
    WAIT = ["seconds", ->(value) { value.is_a?(Numeric) && !value.negative? && value.to_f.finite? }].freeze
    STATUS = ->((word, code)) { Contract::PROBLEMS.key?(word.to_s) && code.is_a?(Integer) && code.between?(400, 599) }
    STATUSES = ["a hash of statuses from 400 to 599 by outcome (#{Contract::PROBLEMS.keys.join(", ")})",
                ->(value) { value.is_a?(Hash) && value.all?(&STATUS) }].freeze

    KNOWN = {
      principal: [CALL, false], # has to be given
      scope: [TEXT, nil], methods: [METHODS, %w[POST PATCH].freeze],
      missing_key: [one_of(:refuse, :pass, :generate, :derive), :refuse],
      window: [SECONDS, Contract::WINDOW_MS / 1000.0], exclude: [TEXTS, [].freeze], fingerprint: [CALL, nil],
      ttl: [SECONDS, nil], wait: [WAIT, nil], statuses: [STATUSES, {}.freeze],
      key_header: [HEADER, "Idempotency-Key"], replay_header: [HEADER, "Idempotent-Replayed"], echo_key: [FLAG, false],
      max_request_bytes: [COUNT, Contract::MAX_REQUEST_BYTES],
      max_answer_bytes: [COUNT, Contract::MAX_ANSWER_BYTES], omit_large_answers: [FLAG, false],
      unprotected_without_database: [FLAG, false],
      on_execute: [CALL, nil], on_replay: [CALL, nil], on_refusal: [CALL, nil], on_lease_lost: [CALL, nil],
      **Settings::KNOWN
    }.freeze
    attr_reader(*(KNOWN.keys - [:methods]))

    def drop_headers = [key_header, replay_header]

    # The status of a problem document, where it is another one.
    def status_of(word) = statuses[word] || statuses[word.to_sym]

    # Whether requests with this method need a key.
    def concern?(method) = @methods.include?(method)
  end
end
