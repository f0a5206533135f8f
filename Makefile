# idempotency: built by PGXS, as any extension: make && make install && make installcheck.
# Out of tree: make -f /path/to/Makefile in an empty folder. Without LLVM bitcode: make with_llvm=no.
# For a server newer than those tested: make UNTESTED_SERVER=1. Warnings are errors: make WERROR=1.

EXTENSION = idempotency
TOP := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))

# The version of the SQL objects, which the library insists on, and that of the release. (PGXS has a
# VERSION of its own: the server's.)
IDEM_VERSION := $(shell sed -n "s/^default_version = '\(.*\)'/\1/p" $(TOP)/idempotency.control)
IDEM_RELEASE := $(shell sed -n 's/^    "version": "\(.*\)",/\1/p' $(TOP)/META.json)

MODULE_big = idempotency
SOURCES = $(sort $(patsubst $(TOP)/%,%,$(wildcard $(TOP)/src/*.cpp $(TOP)/src/*/*.cpp)))
OBJS = $(SOURCES:.cpp=.o)
SHLIB_EXPORTS = exports.txt
DATA = $(patsubst $(TOP)/%,%,$(wildcard $(TOP)/sql/idempotency--*.sql))

# Tests begin with a number, which tells them from the install scripts in sql/. `make installcheck` needs
# a running server with the module installed and max_prepared_transactions = 10. It passes with and
# without the library preloaded. script/test starts such a server, with the settings of test/server.conf.
REGRESS = $(sort $(patsubst $(TOP)/sql/%.sql,%,$(wildcard $(TOP)/sql/[0-9]*.sql)))
REGRESS_OPTS = --encoding=UTF8 --no-locale
ISOLATION = $(sort $(patsubst $(TOP)/test/isolation/specs/%.spec,%,$(wildcard $(TOP)/test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=$(TOP)/test/isolation --encoding=UTF8 --no-locale

PG_CONFIG ?= pg_config
# -isystem silences the warnings of server headers; our own files get all warnings.
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server) -I$(TOP)/src \
	-DIDEM_VERSION='"$(IDEM_VERSION)"' -DIDEM_RELEASE='"$(IDEM_RELEASE)"' $(call openssl,--cflags,) \
	$(if $(UNTESTED_SERVER),-DIDEM_UNTESTED_SERVER)
PG_CXXFLAGS = -std=c++17 -Wall -Wextra $(if $(WERROR),-Werror) -fno-rtti -fvisibility=hidden \
	-fvisibility-inlines-hidden
# A build of a package has the same bytes in any folder: no path of the sources is in it.
ifdef SOURCE_DATE_EPOCH
PG_CXXFLAGS += -ffile-prefix-map=$(TOP)/= -ffile-prefix-map=$(CURDIR)=.
endif
# The flags that PGXS has of the server's compiler may be unknown to this one.
PG_CXXFLAGS += $(if $(findstring clang,$(shell $(CXX) --version)),-Wno-unknown-warning-option)
# PGXS links with the C compiler. The C++ compiler chooses the library: libc++ on macOS, FreeBSD and with -stdlib=libc++.
RUNTIME = $(shell $(CXX) $(CXXFLAGS) -include cstddef -x c++ -E -dM /dev/null | \
	grep -q ' _LIBCPP_VERSION ' && echo -lc++ || echo -lstdc++)
# Of the libcrypto that pkg-config knows, else of the compiler's own folders.
openssl = $(shell pkg-config $1 libcrypto 2>/dev/null || echo $2)
SHLIB_LINK = $(call openssl,--libs,-lcrypto) $(RUNTIME)
# A VPATH build finds sources by VPATH, so the Makefile says where they are.
ifneq ($(TOP),$(CURDIR))
VPATH = $(TOP)
USE_VPATH = $(TOP)
endif
EXTRA_CLEAN = $(OBJS:.o=.d) output_iso

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# Bitcode is compiled by clang with its own defaults unless told our standard.
COMPILE.cxx.bc += $(PG_CXXFLAGS)
# Out of tree, the folders of the objects have to exist before the first compilation.
$(shell mkdir -p $(sort $(dir $(OBJS))))
# PGXS does not track headers.
$(OBJS): override CXXFLAGS += -MMD -MP
-include $(OBJS:.o=.d)
src/idempotency.o src/pg/installed.o: $(TOP)/idempotency.control $(TOP)/META.json

# The contents of a release: the files of the last commit, the same bytes at any time and place.
DIST = idempotency-$(IDEM_RELEASE)
dist:
	TZ=UTC git -C $(TOP) archive --format=zip --prefix=$(DIST)/ HEAD > $(DIST).zip
	git -C $(TOP) archive --format=tar --prefix=$(DIST)/ HEAD | gzip -9n > $(DIST).tar.gz
.PHONY: dist
