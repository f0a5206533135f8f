# frozen_string_literal: true

require "securerandom"

module Idempotency
  # Reads a key as idem_parse_key does: a String of RFC 9651, whose parameters are checked and ignored, or a bare
  # value. The field is read raw: escapes and lists are not decoded.
  module Key
    STRING = /"((?:[ !\#-\[\]-~]|\\["\\])*)"/n
    BARE_ITEM = Regexp.union(
      STRING,
      %r{:[A-Za-z0-9+/]*=*:}n, # Byte Sequence
      /\?[01]/n, # Boolean
      /@-?[0-9]{1,15}(?![0-9.])/n, # Date
      /%"(?:[ !\#$&-~]|%[0-9a-f]{2})*"/n, # Display String
      /-?[0-9]{1,12}\.[0-9]{1,3}(?![0-9.])/n, # Decimal
      /-?[0-9]{1,15}(?![0-9.])/n, # Integer
      %r{[A-Za-z*][!\#$%&'*+\-.^_`|~0-9A-Za-z:/]*}n # Token
    )
    PARAMETER = /; *[a-z*][a-z0-9_\-.*]*(?:=#{BARE_ITEM})?/n
    QUOTED = /\A#{STRING}(?:#{PARAMETER})*\z/n
    BARE = /\A[!\#-+\--:<-\[\]-~]+\z/n
    LONGEST = 255

    module_function

    # The key in a field's value; nil if it has none.
    def parse(field)
      value = field.b.gsub(/\A[ \t]+|[ \t]+\z/, "")
      key = value.match?(BARE) ? value : value[QUOTED, 1]&.gsub(/\\(.)/, '\1')
      key.force_encoding("UTF-8") if key && key.size <= LONGEST && !key.delete(" ").empty?
    end

    # As a String of RFC 9651. Keys of ours and those that `parse` has read are ASCII.
    def quote(key) = %("#{key.gsub(/["\\]/) { |special| "\\#{special}" }}")

    # A UUID of version 7: keys of one moment lie together in an index.
    def generate(now = Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond))
      random = SecureRandom.random_number(1 << 74)
      value = (now << 80) | (0x7 << 76) | (random >> 62 << 64) | (0b10 << 62) | (random & ((1 << 62) - 1))
      value.to_s(16).rjust(32, "0").unpack("a8a4a4a4a12").join("-")
    end
  end
end
