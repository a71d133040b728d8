"""The table of APIs is complete: every version has one canonical form."""

from system_under_test.protocol.apis import APIS


def test_the_table_is_in_the_order_of_the_keys_and_without_gaps():
    assert [api.key for api in APIS] == sorted(api.key for api in APIS)
    for api in APIS:
        for one, next_one in zip(api.canonical, api.canonical[1:], strict=False):
            assert next_one.first == one.last + 1
        for one in api.canonical:
            assert one.request.__api_key__ == one.response.__api_key__ == api.key
            assert one.request.__version__ == one.response.__version__
            assert one.first <= one.request.__version__ <= one.last
