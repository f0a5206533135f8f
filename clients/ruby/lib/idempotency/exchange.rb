# frozen_string_literal: true

require "rack"
require "stringio"

module Idempotency
  # A request of Rack, and a way to run its handler and catch the answer. The block gets the environment.
  class Exchange
    HIJACK = %w[rack.hijack rack.hijack? rack.hijack_io].freeze
    CLAIM = "idempotency.claim"

    attr_reader :request

    def initialize(env, request, scope = nil, &app)
      @env = env
      @before = env.dup
      @request = request
      @scope = scope
      @app = app
    end

    def http_method = @env["REQUEST_METHOD"]

    # As sent, where the server has it; else put together again.
    def target
      raw = @before["REQUEST_URI"]
      return raw.sub(%r{\A[a-z][a-z0-9+.-]*://[^/?]*}i, "") if raw && !raw.empty?

      path = @before["SCRIPT_NAME"].to_s + @before["PATH_INFO"].to_s
      @before["QUERY_STRING"].to_s.empty? ? path : "#{path}?#{@before["QUERY_STRING"]}"
    end

    def default_scope = @scope || "#{http_method} #{@env["SCRIPT_NAME"]}#{@env["PATH_INFO"]}"

    # Servers join several fields of one name by commas.
    def header(name) = @env["HTTP_#{name.upcase.tr("-", "_")}"]

    def content_type = @env["CONTENT_TYPE"]

    def read_body(limit) = Body.read(@env, limit)

    # Runs the handler, each time from the same environment.
    def run(claim, body, limit)
      @env.replace(@before)
      HIJACK.each { |name| @env.delete(name) }
      give(body)
      @env[CLAIM] = claim
      status, headers, content = @app.call(@env)
      Answer.new(status: status.to_i, headers: fields(headers), body: whole(content, limit), raised: @env["idempotency.raised"])
    end

    # What Rack's servers take.
    def self.response(answer)
      body = answer.body.to_s
      left = %w[content-length transfer-encoding trailer connection]
      fields = answer.headers.reject { |name, _| left.include?(name.downcase) }
      fields << ["Content-Length", body.bytesize.to_s] unless [204, 304].include?(answer.status)
      [answer.status, joined(fields), body.empty? ? [] : [body]]
    end

    # Rack 3 has names in lower case, and arrays of values.
    def self.joined(fields)
      modern = ::Rack.release >= "3"
      fields.group_by { |name, _| name.downcase }.to_h do |lower, pairs|
        values = pairs.map(&:last)
        [modern ? lower : pairs.first.first, modern && values.size > 1 ? values : values.join("\n")]
      end
    end
    private_class_method :joined

    private

    # The body, decoded and whole.
    def give(body)
      @env["rack.input"] = StringIO.new(body)
      @env["CONTENT_LENGTH"] = body.bytesize.to_s
      %w[HTTP_CONTENT_ENCODING HTTP_TRANSFER_ENCODING].each { |name| @env.delete(name) }
    end

    def fields(headers)
      headers.flat_map do |name, value|
        raise Error, "an answer that takes over the connection cannot be stored" if name.to_s.start_with?("rack.")

        values = value.is_a?(Array) ? value : value.to_s.split("\n", -1)
        (values.empty? ? [""] : values).map { |one| [name.to_s, one.to_s] }
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
