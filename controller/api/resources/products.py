"""``/v1/products`` and ``/v1/utilization``: what may be asked for, and how full it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeAlias

from aiohttp import web

from controller.api.error_responses import ApiError, or_not_found
from controller.api.operations import Operation
from controller.api.requests import Query, Word, read_query
from controller.api.response_models import (
    Amounts,
    Counted,
    ProductFeatures,
    ProductView,
    Utilization,
)
from controller.kube.capacity import Counts, NodeCapacity
from controller.settings import JobDefaults
from controller.site.product_list import Product
from controller.store.database import Store
from controller.store.jobs.totals import Demand, demand_by_state

CapacityOf: TypeAlias = Callable[[Counts], Awaitable[NodeCapacity | None]]

# Which fields of a job must be carried out for a feature to be there at all.
_NEEDS: Final[Mapping[str, str]] = {
    "web": "interactive",
    "vnc": "interactive",
    "peers": "parameters.peer",
    "extend": "time_allocation_seconds",
}


class UtilizationQuery(Query):
    """Of which product's nodes and jobs; without one, of all."""

    product: Word | None = None


class Products:
    """The handlers of both resources.

    Args:
        defaults: The catalogue.
        offered_fields: What the plugins that run carry out.
        capacity: Returns what nodes of the cluster have, None while it does not answer.
    """

    def __init__(
        self,
        store: Store,
        *,
        defaults: JobDefaults,
        offered_fields: Collection[str],
        capacity: CapacityOf,
    ) -> None:
        self._store = store
        self._defaults = defaults
        self._offered = frozenset(offered_fields)
        self._capacity = capacity

    @Operation(
        "GET",
        "/v1/products",
        "listProducts",
        "See what may be asked for",
        answer=ProductView,
        many=True,
    )
    async def show(self, _request: web.Request) -> web.Response:
        """Show each product of the catalogue, in its order."""
        catalogue = self._defaults.pods.catalogue
        views = [
            self._view(name, product, default=name == catalogue.default)
            for name, product in catalogue.products.items()
        ]
        return web.json_response({"items": [one.model_dump(mode="json") for one in views]})

    @Operation(
        "GET",
        "/v1/utilization",
        "getUtilization",
        "See how full the cluster is",
        query=UtilizationQuery,
        answer=Utilization,
        errors=("not_found", "not_offered"),
    )
    async def utilization(self, request: web.Request) -> web.Response:
        """Show what there is, what runs and what waits; of one product, where it offers that."""
        name = read_query(request, UtilizationQuery).product
        counts = self._nodes_of(name) if name is not None else _any_node
        async with self._store.read() as transaction:
            demand = await demand_by_state(transaction, product=name)
        known = await self._capacity(counts)
        shown = Utilization(
            capacity=Amounts.model_validate(known) if known is not None else None,
            used=_sum(demand, ("RUNNING", "CANCELING")),
            queued=_sum(demand, ("IN_QUEUE",)),
        )
        return web.json_response(shown.model_dump(mode="json"))

    def _nodes_of(self, name: str) -> Counts:
        catalogue = self._defaults.pods.catalogue
        product = or_not_found(catalogue.products.get(name), "product")
        if not catalogue.offers(name, "utilization"):
            raise ApiError("not_offered", "The product does not tell how full it is.")
        return product.accepts

    def _view(self, name: str, product: Product, *, default: bool) -> ProductView:
        return ProductView(
            name=name,
            title=product.title,
            default=default,
            cpu=str(product.cpu),
            memory=str(product.memory),
            gpu=product.gpu,
            price=None if product.price is None else product.price.model_dump(),
            features=self._features(product),
        )

    def _features(self, product: Product) -> ProductFeatures:
        said = product.features.model_dump()
        for feature, field in _NEEDS.items():
            said[feature] = said[feature] and field in self._offered
        return ProductFeatures(**said, suspend=True)


def _any_node(_labels: Mapping[str, str]) -> bool:
    return True


def _sum(demand: Mapping[str, Demand], states: Collection[str]) -> Counted:
    found = [demand[state] for state in states if state in demand]
    return Counted(
        # Thousandths are what a job can ask for: 0.1 and 0.2 are 0.3.
        cpu=round(sum(one.cpu for one in found), 3),
        memory=sum(one.memory for one in found),
        gpu=sum(one.gpu for one in found),
        jobs=sum(one.jobs for one in found),
    )
