// Shows the description that this origin serves. It asks nobody else for anything: validatorUrl
// would send the description away.
window.addEventListener("DOMContentLoaded", () => {
  SwaggerUIBundle({
    url: "/docs/openapi.json",
    dom_id: "#docs",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    filter: true,
    validatorUrl: null,
  });
});
