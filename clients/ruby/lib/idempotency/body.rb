# frozen_string_literal: true

require "zlib"

module Idempotency
  # Reads a request's body from Rack and decodes it. The limit counts decoded bytes, and no more is read than it needs.
  class Body
    WINDOWS = { "identity" => nil, "gzip" => 31, "x-gzip" => 31, "deflate" => 15 }.freeze
    PIECE = 8_192 # what follows a member is copied

    def self.read(env, limit) = new(env, limit).read

    def initialize(env, limit)
      @input = env["rack.input"]
      @limit = limit
      @body = String.new(encoding: Encoding::BINARY)
      encoding = env.fetch("HTTP_CONTENT_ENCODING", "identity").strip.downcase
      @window = WINDOWS.fetch(encoding) { raise Problem, "content_encoding" }
      @inflate = @window && Zlib::Inflate.new(@window)
      @left = env["HTTP_TRANSFER_ENCODING"] ? Float::INFINITY : length(env["CONTENT_LENGTH"].to_s)
    end

    def read
      return @body unless @input

      @input.rewind if @input.respond_to?(:rewind)
      while @left.positive? && (piece = @input.read([PIECE, @limit + 1, @left].min))
        @left -= piece.bytesize
        take(piece)
      end
      refuse("The body is shorter than its Content-Length.") if @left.positive? && @left.finite?
      refuse("The body is not what Content-Encoding says.") if @inflate && !@inflate.finished?
      @body
    end

    private

    def length(said)
      return Float::INFINITY if said.empty?

      refuse("Content-Length is not a number.") unless said.match?(/\A[0-9]+\z/)
      raise Problem, "body_too_large" if @inflate.nil? && said.to_i > @limit

      said.to_i
    end

    def take(piece)
      return append(piece) unless @inflate

      until piece.empty?
        @inflate.reset if @inflate.finished? # several members in a row are one body
        before = @inflate.total_in
        @inflate.inflate(piece) { |part| append(part) }
        piece = @inflate.finished? ? piece.byteslice((@inflate.total_in - before)..) : ""
      end
    rescue Zlib::Error
      refuse("The body is not what Content-Encoding says.")
    end

    def append(piece)
      @body << piece
      raise Problem, "body_too_large" if @body.bytesize > @limit
    end

    def refuse(detail) = raise(Problem.new("bad_body", detail))
  end
end
