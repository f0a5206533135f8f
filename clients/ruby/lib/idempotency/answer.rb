# frozen_string_literal: true

module Idempotency
  # An answer over HTTP. Its headers are pairs: several fields of one name are several pairs.
  # `raised`: it is the answer to an exception, so the work is rolled back.
  Answer = Struct.new(:status, :headers, :body, :raised, :whole, keyword_init: true) do
    def initialize(status: 200, headers: [], body: nil, raised: false, whole: nil)
      super
    end

    # Of a field, by its name; nil if there is none.
    def [](name)
      name.is_a?(String) ? headers.find { |known, _| known.casecmp?(name) }&.last : super
    end

    # The answer to send: only the status may be stored.
    def to_send = whole || self

    # In the form of idem_complete: one member for each name; several values become an array.
    def stored_headers(drop)
      dropped = drop.map(&:downcase) + Contract::NOT_STORED
      kept = headers.reject { |name, _| dropped.include?(name.downcase) }.group_by { |name, _| name.downcase }
      kept.values.to_h { |pairs| [pairs.first.first, pairs.size > 1 ? pairs.map(&:last) : pairs.first.last] }
    end
  end

  # The request of a claim. Times are seconds. Without a key, the server derives one for `derive` seconds.
  Request = Struct.new(:key, :scope, :principal, :json, :fingerprint, :http_method, :target, :exclude, :ttl, :wait,
                       :holder, :derive, keyword_init: true)

  # `outcome`: executed, replay, not_kept, failed (a record without an answer), or why it was refused.
  Result = Struct.new(:outcome, :answer, :record)

  # A row of idem_begin.
  class Record
    attr_reader :outcome, :key, :token, :attempt, :recovery_point, :state, :retry_after

    def initialize(row)
      @row = row
      @outcome, @key, @token, @recovery_point = row.values_at("outcome", "key", "token", "recovery_point")
      @attempt = row["attempt"]&.to_i
      @retry_after = row["retry_after"]&.to_f
      @state = row["state"] && JSON.parse(row["state"])
    end

    def execute? = outcome == "execute"

    # Of a request that is not executed.
    def result
      return Result.new(outcome, nil, self) unless outcome == "replay"

      answer = replay
      Result.new(answer ? "replay" : "failed", answer, self)
    end

    private

    # The stored answer; none where a record failed without one.
    def replay
      status = @row["status_code"]
      return if status.nil? && @row["status"] != "completed"

      Answer.new(status: (status || 200).to_i, headers: stored_fields, body:)
    end

    def stored_fields
      fields = JSON.parse(@row["headers"] || "{}").flat_map { |name, value| Array(value).map { |one| [name, one] } }
      @row["body_omitted"] == "t" ? [*fields, %w[Idempotent-Body omitted]] : fields
    end

    def body = @row["body"] && PG::Connection.unescape_bytea(@row["body"])
  end
end
