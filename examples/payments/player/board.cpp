#include "board.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace payments {

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a lock inside of an atomic would not work between processes");

template <typename T>
SharedArray<T>::SharedArray(std::size_t count) : count_(count) {
    void* memory =
        mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    items_ = static_cast<T*>(memory);
    std::uninitialized_default_construct_n(items_, count);
}

template <typename T>
SharedArray<T>::~SharedArray() {
    munmap(items_, count_ * sizeof(T));
}

template class SharedArray<Common>;
template class SharedArray<Desk>;
template class SharedArray<LineState>;

}  // namespace payments
