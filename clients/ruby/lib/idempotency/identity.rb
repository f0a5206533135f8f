# frozen_string_literal: true

require "digest"

module Idempotency
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
      hashed = Digest::SHA256.new << "idempotency fingerprint 1\n"
      [method, target, media, *(parts || [body])].each do |part|
        hashed << (part ? "#{part.bytesize}:".b << part.b << "\n" : "-\n")
      end
      hashed.digest
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
