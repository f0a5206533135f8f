# frozen_string_literal: true

require "digest"
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
      window = WINDOWS.fetch(encoding) { raise Problem, "content_encoding" }
      @inflate = window && Zlib::Inflate.new(window)
      @left = env["HTTP_TRANSFER_ENCODING"] ? Float::INFINITY : length(env["CONTENT_LENGTH"].to_s)
    end

    def read
      return @body unless @input

      @input.rewind if @input.respond_to?(:rewind)
      while @left.positive? && (piece = @input.read([PIECE, @limit + 1, @left].min))
        @left -= piece.bytesize
        @inflate ? inflate(piece) : append(piece)
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

    def inflate(piece)
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

  # The parts of a request that identify it. No I/O.
  module Identity
    module_function

    # Type and subtype, in lower case; nil if there is none.
    def media_type(content_type)
      media = content_type.to_s.split(";", 2).first.to_s.strip.downcase
      media unless media.empty?
    end

    def json?(content_type) = media_type(content_type)&.match?(%r{\A(application/json|[^/]+/[^/]+\+json)\z}) || false

    # The text of a JSON body, exactly. A text that is not UTF-8 is not JSON, and no driver would send a NUL.
    def text_of(body)
      text = body.dup.force_encoding("UTF-8")
      raise Problem, "bad_json" if !text.valid_encoding? || text.include?("\0")

      text
    end

    # The fingerprint of a body that is not JSON: docs/fingerprint.md, with the media type as an extra part.
    def digest(method, target, content_type, body)
      media = media_type(content_type)
      parts = form_parts(content_type, body)&.flatten if media == "multipart/form-data"
      parts = [method, target, media, *(parts || [body])]
      hashed = parts.map { |part| part ? "#{part.bytesize}:".b << part.b << "\n" : "-\n" }
      Digest::SHA256.digest("idempotency fingerprint 1\n#{hashed.join}")
    end

    # Each sending has another boundary, so the parts identify a form. nil if the body is not what its type says.
    def form_parts(content_type, body)
      boundary = parameter(content_type.b, "boundary")
      return if boundary.nil? || boundary.empty?

      mark = "\r\n--".b << boundary
      empty, *pieces, last = "\r\n".b.concat(body.b).split(mark, -1) # the first mark may begin the body
      return unless empty == "" && pieces.any? && last.start_with?("--") && last.size <= 4

      parts = pieces.map { |piece| form_part(piece) }
      parts unless parts.include?(nil)
    end

    # Name, file name, media type and content of a part, from the end of its boundary's line on.
    def form_part(piece)
      head, separator, content = piece.partition("\r\n\r\n")
      return if !piece.start_with?("\r\n") || separator.empty?

      fields = head[2..].split("\r\n").reverse.to_h do |line|
        name, _, value = line.partition(":")
        [name.strip.downcase, value.strip]
      end
      disposition = fields["content-disposition"] or return
      [parameter(disposition, "name"), parameter(disposition, "filename"), media_type(fields["content-type"]), content]
    end

    # The parameter of a field's value, without its quotes.
    def parameter(value, name)
      found = /;[ \t]*#{name}[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;" \t]*))/mni.match(value) or return
      found[1] ? found[1].gsub(/\\(["\\])/n, '\1') : found[2]
    end
  end
end
