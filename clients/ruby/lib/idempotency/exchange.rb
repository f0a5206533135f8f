# frozen_string_literal: true

require "rack"
require "stringio"

module Idempotency
  # A request of Rack, and a way to run its handler and catch the answer. The block gets the environment.
  class Exchange
    CLAIM = "idempotency.claim"
    # The handler gets the body decoded and whole, and cannot take over the connection.
    NOT_GIVEN = %w[HTTP_CONTENT_ENCODING HTTP_TRANSFER_ENCODING rack.hijack rack.hijack? rack.hijack_io].freeze
    NOT_SENT = %w[content-length transfer-encoding trailer connection].freeze

    attr_reader :request

    def initialize(request, scope = nil, &app)
      @request = request
      @before = env.dup
      @scope = scope
      @app = app
    end

    def env = request.env

    def http_method = env["REQUEST_METHOD"]

    # As sent, where the server has it; else put together again.
    def target
      sent = @before["REQUEST_URI"].to_s
      sent.empty? ? Rack::Request.new(@before).fullpath : sent.sub(%r{\A[a-z][a-z0-9+.-]*://[^/?]*}i, "")
    end

    def default_scope = @scope || "#{http_method} #{request.path}"

    # Servers join several fields of one name by commas.
    def header(name) = env["HTTP_#{name.upcase.tr("-", "_")}"]

    def content_type = env["CONTENT_TYPE"]

    # Runs the handler, each time from the same environment.
    def run(claim, body, limit)
      env.replace(@before.except(*NOT_GIVEN))
      env.update("rack.input" => StringIO.new(body), "CONTENT_LENGTH" => body.bytesize.to_s, CLAIM => claim)
      code, fields, body = @app.call(env)
      Answer.new(status: code.to_i, headers: pairs(fields), body: whole(body, limit), raised: env["idempotency.raised"])
    end

    # What Rack's servers take. Rack 3 has names in lower case, and arrays of values.
    def self.response(answer)
      body = answer.body.to_s
      fields = answer.headers.reject { |name, _| NOT_SENT.include?(name.downcase) }
      length = answer["Content-Length"] if body.empty? # to HEAD
      fields << ["Content-Length", length || body.bytesize.to_s] unless [204, 304].include?(answer.status)
      modern = ::Rack.release >= "3"
      headers = fields.group_by { |name, _| name.downcase }.to_h do |lower, pairs|
        values = pairs.map(&:last)
        [modern ? lower : pairs.first.first, modern && values.size > 1 ? values : values.join("\n")]
      end
      [answer.status, headers, body.empty? ? [] : [body]]
    end

    private

    def pairs(fields)
      fields.flat_map do |name, value|
        raise Error, "an answer that takes over the connection cannot be stored" if name.to_s.start_with?("rack.")

        values = value.is_a?(Array) ? value : value.to_s.b.split("\n", -1)
        (values.empty? ? [""] : values).map { |one| [name, one] }
      end
    end

    # A streamed answer is collected: it is sent when it is stored.
    def whole(content, limit)
      raise Error, "an answer that writes to the connection cannot be stored" unless content.respond_to?(:each)

      body = String.new(encoding: Encoding::BINARY)
      content.each do |piece|
        body << piece.b
        raise AnswerTooLarge, "the answer has more than #{limit} bytes" if limit && body.bytesize > limit
      end
      body
    ensure
      content.close if content.respond_to?(:close)
    end
  end
end
