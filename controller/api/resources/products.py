"""``/v1/products`` and ``/v1/utilization``: the product catalogue, and the cluster's load."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from aiohttp import web

from controller.api.error_responses import ApiError, or_not_found
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.requests import Query, Word
from controller.api.response_models import (
    Amounts,
    Counted,
    ProductFeatures,
    ProductView,
    Utilization,
)
from controller.kube.capacity import Counts
from controller.site.product_list import Product
from controller.store.jobs.totals import Demand, demand_by_state

# The job field that an enabled plugin must implement for each feature.
_NEEDS: Final[Mapping[str, str]] = {
    "web": "interactive",
    "vnc": "interactive",
    "peers": "parameters.peer",
    "extend": "time_allocation_seconds",
}


class UtilizationQuery(Query):
    """Selects the nodes and jobs of one product; by default all."""

    product: Word | None = None


@operation("GET", "/v1/products", "listProducts", "List the products")
async def show(api: ApiParts, _request: web.Request) -> list[ProductView]:
    """Return each product of the catalogue, in its order."""
    catalogue = api.defaults.pods.catalogue
    return [
        ProductView(
            name=name,
            title=product.title,
            default=name == catalogue.default,
            cpu=str(product.cpu),
            memory=str(product.memory),
            gpu=product.gpu,
            price=None if product.price is None else product.price.model_dump(),
            features=_features(api, product),
        )
        for name, product in catalogue.products.items()
    ]


@operation(
    "GET",
    "/v1/utilization",
    "getUtilization",
    "Get the utilization of the cluster",
    errors=("not_found", "not_offered"),
)
async def utilization(api: ApiParts, _request: web.Request, query: UtilizationQuery) -> Utilization:
    """Return the capacity and the demand, of the cluster or of a product that offers this."""
    counts = _any_node if query.product is None else _nodes_of(api, query.product)
    async with api.store.read() as transaction:
        demand = await demand_by_state(transaction, product=query.product)
    known = await api.capacity(counts)
    return Utilization(
        capacity=Amounts.model_validate(known) if known is not None else None,
        used=_sum(demand, ("RUNNING", "CANCELING")),
        queued=_sum(demand, ("IN_QUEUE",)),
    )


def _nodes_of(api: ApiParts, name: str) -> Counts:
    catalogue = api.defaults.pods.catalogue
    product = or_not_found(catalogue.products.get(name), "product")
    if not catalogue.offers(name, "utilization"):
        raise ApiError("not_offered", "The product does not offer its utilization.")
    return product.accepts


def _features(api: ApiParts, product: Product) -> ProductFeatures:
    said = product.features.model_dump()
    for feature, field in _NEEDS.items():
        said[feature] = said[feature] and field in api.offered_fields
    return ProductFeatures(**said, suspend=True)


def _any_node(_labels: Mapping[str, str]) -> bool:
    return True


def _sum(demand: Mapping[str, Demand], states: Collection[str]) -> Counted:
    found = [demand[state] for state in states if state in demand]
    return Counted(
        # Jobs request at most three decimals; rounding hides the error of adding 0.1 and 0.2.
        cpu=round(sum(one.cpu for one in found), 3),
        memory=sum(one.memory for one in found),
        gpu=sum(one.gpu for one in found),
        jobs=sum(one.jobs for one in found),
    )
