# frozen_string_literal: true

module Idempotency
  # An answer over HTTP. Its headers are pairs: several fields of one name are several pairs.
  # `raised`: it is the answer to an exception, so the work is rolled back.
  Answer = Struct.new(:status, :headers, :body, :raised, :whole, keyword_init: true) do
    def initialize(status: 200, headers: [], body: nil, raised: false, whole: nil)
      headers = headers.map { |field| field.map { |text| Answer.storable(text) } }
      super
    end

    # In UTF-8 and without control characters: others cannot be stored.
    def self.storable(text) = text.to_s.dup.force_encoding("UTF-8").scrub("\uFFFD").tr("\0-\b\n-\x1F\x7F", " ")

    # Of a field, by its name; nil if there is none.
    def [](name) = name.is_a?(String) ? headers.find { |known, _| known.casecmp?(name) }&.last : super

    # The answer to send: only the status may be stored.
    def to_send = whole || self

    # In the form of idem_complete: one member for each name; several values become an array.
    def stored_headers(drop)
      dropped = drop.map(&:downcase) + Contract::NOT_STORED
      kept = headers.group_by { |name, _| name.downcase }.except(*dropped)
      kept.values.to_h { |pairs| [pairs.first.first, pairs.size > 1 ? pairs.map(&:last) : pairs.first.last] }
    end
  end

  # The request of a claim. Times are seconds. Without a key, the server derives one for `derive` seconds.
  Request = Struct.new(:key, :scope, :principal, :json, :fingerprint, :http_method, :target, :exclude, :ttl, :wait,
                       :holder, :derive, keyword_init: true) do
    def initialize(principal:, **others) = super(principal: Request.name_of(principal), **others)

    # Of any other object, the text may be another one in each request.
    def self.name_of(principal)
      return principal.to_s if principal.is_a?(String) || principal.is_a?(Integer)

      raise Error, "idempotency: `principal` has to be a string or an integer, and is of #{principal.class}"
    end
  end

  # `outcome`: executed, replay, not_kept, failed (a record without an answer), or why it was refused.
  Result = Struct.new(:outcome, :answer, :record)

  # A row of idem_begin.
  class Record
    def initialize(row)
      @row = row
    end

    # Of a column. The server decides how deeply it may be nested.
    def self.json(text) = text && JSON.parse(text, max_nesting: false)

    %w[outcome key token recovery_point].each { |column| define_method(column) { @row[column] } }

    def attempt = @row["attempt"]&.to_i

    def retry_after = @row["retry_after"]&.to_f

    def state = Record.json(@row["state"]) || {}

    def execute? = outcome == "execute"

    # Of a request that is not executed. A record may have failed without an answer.
    def result
      return Result.new(outcome, nil, self) unless outcome == "replay"

      answered = @row["status_code"] || @row["status"] == "completed"
      answered ? Result.new("replay", answer, self) : Result.new("failed", nil, self)
    end

    private

    def answer
      headers = JSON.parse(@row["headers"] || "{}").flat_map { |name, values| [name].product(Array(values)) }
      headers << %w[Idempotent-Body omitted] if @row["body_omitted"] == "t"
      body = @row["body"] && PG::Connection.unescape_bytea(@row["body"])
      Answer.new(status: (@row["status_code"] || 200).to_i, headers:, body:)
    end
  end
end
