# frozen_string_literal: true

require "minitest/autorun"
require "rbconfig"

# Every file, also those that no other test loads. It loads none of them itself.
class SyntaxTest < Minitest::Test
  FOLDER = File.expand_path("..", __dir__)
  FILES = Dir["#{FOLDER}/**/*.rb"] + %w[call worker].map { |name| "#{FOLDER}/example/#{name}" }

  def test_this_ruby_reads_them
    FILES.each { |file| assert system(RbConfig.ruby, "-c", file, out: File::NULL), file }
  end

  # Ruby 3.1 refuses an anonymous block beside named parameters, which newer ones read.
  def test_ruby_3_1_reads_them
    FILES.each { |file| assert_empty File.foreach(file).grep(/def [^(]+\([^)]*\w:[^)]*&\)/), file }
  end
end
