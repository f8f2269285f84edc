// SPDX-License-Identifier: MIT OR Apache-2.0
/**
 * @file
 * A make-believe shop: two threads take orders, and say what became of them. Nothing to link:
 *
 *     c++ -std=c++17 shop.cc -o shop -pthread
 *     trackway record -- ./shop
 */
#include <array>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <trackway/trackway.hpp>

namespace shop {

enum class Refusal : std::uint8_t { unknown_item, sold_out };

TRACKWAY_ENUM(shop, refusal,
    (unknown_item, Refusal::unknown_item), (sold_out, Refusal::sold_out));

// The work on one order: order_begin and order_end.
TRACKWAY_SCOPE_EVENT(shop, order, TRACKWAY_INFO, (text, customer), (seq, items, u32));
TRACKWAY_EVENT(shop, sold, TRACKWAY_INFO,
    (text, customer), (u32, price_cents), (u64, took_ns));
TRACKWAY_EVENT(shop, refused, TRACKWAY_WARNING,
    (text, customer), (enum, why, shop, refusal, u8), (str, message));
TRACKWAY_EVENT(shop, stock, TRACKWAY_DEBUG, (array, left, u32, 3));

struct Refused : std::runtime_error {
    Refusal why;
    Refused(Refusal reason, const std::string &message) : std::runtime_error(message), why(reason)
    {
    }
};

class Shop {
public:
    /// Returns the price. Throws Refused: the scope ends all the same.
    unsigned sell(std::string_view customer, const std::vector<unsigned> &items)
    {
        trackway_scope(shop, order, customer, items);
        const std::lock_guard<std::mutex> guard(mutex_);
        unsigned price = 0;
        for (const unsigned item : items) {
            if (item >= stock_.size())
                throw Refused(Refusal::unknown_item, "no item " + std::to_string(item));
            if (stock_[item] == 0)
                throw Refused(Refusal::sold_out, "no more of item " + std::to_string(item));
            stock_[item]--;
            price += 250 * (item + 1);
        }
        trackway(shop, stock, stock_);
        return price;
    }

private:
    std::mutex mutex_;
    std::array<unsigned, 3> stock_ = {100, 100, 100};
};

void serve(Shop &shop, std::string_view customer, unsigned item)
{
    using clock = std::chrono::steady_clock;
    for (int i = 0; i < 100; i++) {
        const auto begin = clock::now();
        try {
            const unsigned price = shop.sell(customer, {item, 2});
            const std::chrono::nanoseconds took = clock::now() - begin;
            trackway(shop, sold, customer, price, static_cast<std::uint64_t>(took.count()));
        } catch (const Refused &refusal) {
            trackway(shop, refused, customer, refusal.why, refusal.what());
        }
    }
}

} // namespace shop

int main()
{
    shop::Shop shop;
    std::thread ada([&] { shop::serve(shop, "Ada", 1); });
    std::thread bjarne([&] { shop::serve(shop, "Bjarne", 0); });
    ada.join();
    bjarne.join();
    std::puts("the shop is closed");
}
