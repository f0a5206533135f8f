# frozen_string_literal: true

require "zlib"

module Idempotency
  # Reads a request's body from Rack and decodes it. The limit counts decoded bytes, and no more is read than it needs.
  class Body
    WINDOWS = { "identity" => nil, "gzip" => 31, "x-gzip" => 31, "deflate" => 15 }.freeze
    PIECE = 65_536

    def self.read(env, limit) = new(env, limit).read

    def initialize(env, limit)
      @env = env
      @limit = limit
      @body = String.new(encoding: Encoding::BINARY)
      @window = window
      @inflate = @window && Zlib::Inflate.new(@window)
      @length = length
    end

    def read
      input = @env["rack.input"] or return @body
      input.rewind if input.respond_to?(:rewind)
      left = @length || Float::INFINITY
      while left.positive? && (piece = input.read([PIECE, @limit + 1, left].min))
        left -= piece.bytesize
        take(piece)
      end
      raise Problem.new("bad_body", "The body is shorter than its Content-Length.") if @length && left.positive?

      finish
    end

    private

    def length
      said = @env["CONTENT_LENGTH"].to_s
      return if said.empty? || @env["HTTP_TRANSFER_ENCODING"]
      raise Problem.new("bad_body", "Content-Length is not a number.") unless said.match?(/\A[0-9]+\z/)
      raise Problem, "body_too_large" if @inflate.nil? && said.to_i > @limit

      said.to_i
    end

    def window
      WINDOWS.fetch(@env.fetch("HTTP_CONTENT_ENCODING", "identity").strip.downcase) { raise Problem, "content_encoding" }
    end

    def take(piece)
      return append(piece) unless @inflate

      @inflate = Zlib::Inflate.new(@window) if @inflate.finished? # several members in a row are one body
      @inflate.inflate(piece) { |part| append(part) }
      rest = @inflate.finished? ? @inflate.flush_next_in : ""
      take(rest) unless rest.empty?
    rescue Zlib::Error
      raise broken
    end

    def append(piece)
      @body << piece
      raise Problem, "body_too_large" if @body.bytesize > @limit
    end

    def finish
      raise broken if @inflate && !@inflate.finished?

      @body
    end

    def broken = Problem.new("bad_body", "The body is not what Content-Encoding says.")
  end
end
