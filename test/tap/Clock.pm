# Helper of the TAP tests that set the clock: that of one server, not of the machine. A library
# loaded before the server's own replaces gettimeofday(), from which the server takes the time of
# day.
package Clock;

use Idem;

my $source = <<'C';
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int file = -1;

__attribute__((constructor)) static void open_file(void)
{
	const char *name = getenv("IDEM_CLOCK");

	if (name != NULL)
		file = open(name, O_RDONLY | O_CLOEXEC);
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec now;
	char text[32] = "";

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &now);
	if (file >= 0 && pread(file, text, sizeof(text) - 1, 0) < 0)
		text[0] = '\0';
	tv->tv_sec = now.tv_sec + atol(text);
	tv->tv_usec = now.tv_nsec / 1000;
	return 0;
}
C

# Undef without a compiler.
sub new ($class)
{
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my $self = bless {
		library => "$folder/clock.so", file => "$folder/offset", offset => 0 }, $class;

	PostgreSQL::Test::Utils::append_to_file("$folder/clock.c", $source);
	$self->shift(0);
	return system('cc', '-shared', '-fPIC', '-o', $self->{library}, "$folder/clock.c") == 0
	  ? $self : undef;
}

# run(sub { ... }): any server started in the code uses this clock.
sub run ($self, $start)
{
	local $ENV{IDEM_CLOCK} = $self->{file};
	local $ENV{LD_PRELOAD} = $self->{library};
	return $start->();
}

# shift(seconds): from now on the clock shows that much more (or less, if negative).
sub shift ($self, $seconds)
{
	$self->{offset} += $seconds;
	# Written in place and with a fixed length, so that no server reads half of it.
	open my $file, -e $self->{file} ? '+<' : '>', $self->{file} or die "$self->{file}: $!";
	syswrite $file, sprintf("%-20d\n", $self->{offset});
	close $file;
	return;
}

1;
